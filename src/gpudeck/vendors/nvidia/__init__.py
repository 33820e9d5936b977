# SPDX-License-Identifier: Apache-2.0
"""NVIDIA: NVML behind the contract.

library    `contract.Library`: what runs in the library process
nvml       loads libnvidia-ml.so.1 from the node and translates its return codes
inventory  one card → what it is
checks     one card → what is wrong with it now
xids       numbers the driver raises → the card's fault or the application's
driver     `contract.Vendor`: the PCI bus, and what containers need
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
    from gpudeck.vendors.nvidia import session  # noqa: PLC0415

    return session.NvmlLibrary(settings, progress)
