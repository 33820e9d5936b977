# SPDX-License-Identifier: Apache-2.0
"""NVIDIA: NVML behind the contract.

session    `contract.Library`: what runs in the library process
nvml       loads libnvidia-ml.so.1 from the node and translates its return codes
inventory  one card → what it is
mig        what MIG offers on a card and what of it exists
instances  makes and removes MIG instances
fabric     one card → the NVLink fabric it belongs to
checks     one card → what is wrong with it now
xids       numbers the driver raises → the card's fault or the application's
driver     `contract.Vendor`: the PCI bus, and what containers need
slicing    what a card offers to shares; its time slice
limits     whether the driver can keep a container to an amount of memory
resetting  resets a card
capabilities  the device nodes of one MIG partition
sharing    edits of a share: the card, and the hook that limits memory
mps        control daemons of MPS, in a process of their own
files      which files of the node belong to the driver
"""

from __future__ import annotations

from gpudeck.vendors import contract


def vendor(settings: contract.VendorSettings) -> contract.Vendor:
    """Make the serving side."""
    from gpudeck.vendors.nvidia import driver  # noqa: PLC0415 - each side imports its own.

    return driver.NvidiaVendor(settings)


def library(settings: contract.VendorSettings, progress: contract.Progress) -> contract.Library:
    """Make the library side."""
    from gpudeck.vendors.nvidia import session  # noqa: PLC0415 - as above.

    return session.NvmlLibrary(settings, progress)
