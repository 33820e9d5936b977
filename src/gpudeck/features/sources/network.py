# SPDX-License-Identifier: Apache-2.0
"""The features network.device (interfaces of hardware) and network.virtual (the others).

Many drivers answer a read of `speed` with EINVAL while there is no link: such a value is
left out without a word, and the interface stays.
"""

from __future__ import annotations

from gpudeck import errors
from gpudeck.features.known import Known
from gpudeck.host.root import Root

INTERFACES = "/sys/class/net"
_VALUES = ("operstate", "speed", "mtu")
_DEVICE_VALUES = ("sriov_numvfs", "sriov_totalvfs")


def read(root: Root, known: Known) -> list[str]:
    """Add all interfaces."""
    real: list[dict[str, str]] = []
    virtual: list[dict[str, str]] = []
    left_out = []
    for name in root.list(INTERFACES):
        folder = f"{INTERFACES}/{name}"
        if not root.is_directory(folder):
            continue  # bonding_masters is a file.
        try:
            is_real = root.is_directory(f"{folder}/device")
            found = _interface(root, name, more=_DEVICE_VALUES if is_real else ())
        except errors.GpudeckError as error:
            left_out.append(error.message)
            continue
        (real if is_real else virtual).append(found)
    known.instances["network.device"] = real
    known.instances["network.virtual"] = virtual
    return left_out


def _interface(root: Root, name: str, *, more: tuple[str, ...]) -> dict[str, str]:
    folder = f"{INTERFACES}/{name}"
    found = {"name": name}
    for each in _VALUES:
        value = root.attribute(f"{folder}/{each}")
        if value is not None:
            found[each] = value
    for each in more:
        value = root.attribute(f"{folder}/device/{each}")
        if value is not None:
            found[each] = value
    return found
