# SPDX-License-Identifier: Apache-2.0
"""The features network.device (interfaces of hardware) and network.virtual (the others).

Many drivers answer a read of `speed` with EINVAL while there is no link: such a value is
left out without a word, and the interface stays.
"""

from __future__ import annotations

from gpudeck.features.known import Known
from gpudeck.features.sources.attributes import Attributes
from gpudeck.host.root import Root

INTERFACES = "/sys/class/net"
_VALUES = ("operstate", "speed", "mtu")
_DEVICE_VALUES = ("sriov_numvfs", "sriov_totalvfs")


def read(root: Root, known: Known) -> list[str]:
    """Add all interfaces."""
    attributes = Attributes(root)
    real: list[dict[str, str]] = []
    virtual: list[dict[str, str]] = []
    for name in root.list(INTERFACES):
        folder = f"{INTERFACES}/{name}"
        if not root.is_directory(folder):
            continue  # bonding_masters is a file.
        found = {"name": name, **attributes.of(folder, _VALUES)}
        if root.is_directory(f"{folder}/device"):
            real.append({**found, **attributes.of(f"{folder}/device", _DEVICE_VALUES)})
        else:
            virtual.append(found)
    known.instances["network.device"] = real
    known.instances["network.virtual"] = virtual
    return attributes.left_out
