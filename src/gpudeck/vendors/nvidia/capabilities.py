# SPDX-License-Identifier: Apache-2.0
"""The device nodes that open the way to one MIG partition and to no other; pure reading.

NVIDIA's driver guards each GPU instance and each compute instance by a capability: whoever
may open its node in /dev/nvidia-caps may use the instance, through the card's own
node (open kernel module 595, nv-caps.c). The number of the node stands in a
file below /proc/driver/nvidia/capabilities. The node itself is made by whichever program of the
maker's needs it first, so it may be missing on the node although the instance is
there; the container runtime makes it in the container from the number.
"""

from __future__ import annotations

import re

from gpudeck import errors
from gpudeck.cdi import spec
from gpudeck.host import root as host
from gpudeck.vendors import contract

_FILES = "/proc/driver/nvidia/capabilities"
_VERSION = "/proc/driver/nvidia/version"
_DEVICES = "/proc/devices"
_NAME = "nvidia-caps"
_MINOR = re.compile(r"^DeviceFileMinor:\s*([0-9]+)\s*$", re.MULTILINE)
_MAJOR = re.compile(rf"^\s*([0-9]+)\s+{_NAME}\s*$", re.MULTILINE)


def nodes(
    root: host.Root, card: contract.CardReading, partition: contract.Partition
) -> tuple[spec.DeviceNode, ...]:
    """The nodes of a partition's GPU instance and compute instance, in that order.

    Raises UnavailableError where the driver does not show the partition (now).
    """
    instance, found, compute = partition.driver_id.partition("/")
    if not found:
        raise errors.UnavailableError(
            f"{card.address}: the partition {partition.profile} at {partition.start} has no "
            "compute instance, so no container can use it.",
            reason="PartitionNotVisible",
        )
    folder = f"{_FILES}/gpu{card.minor}/mig/gi{instance}"
    paths = (f"{folder}/access", f"{folder}/ci{compute}/access")
    return tuple(_node(root, card, path) for path in paths)


def traces(root: host.Root) -> tuple[str, ...]:
    """The driver's version, and every instance that it guards by a capability."""
    found = [root.attribute(_VERSION) or ""]
    for card in root.list(_FILES):
        for instance in root.list(f"{_FILES}/{card}/mig"):
            inside = ",".join(root.list(f"{_FILES}/{card}/mig/{instance}"))
            found.append(f"{card}/{instance}: {inside}")
    return tuple(found)


def _node(root: host.Root, card: contract.CardReading, access: str) -> spec.DeviceNode:
    minor = _number(_MINOR, root.attribute(access))
    major = _number(_MAJOR, root.attribute(_DEVICES))
    if minor is None or major is None:
        missing = access if minor is None else f"{_NAME} in {_DEVICES}"
        raise errors.UnavailableError(
            f"{card.address}: the driver shows no {missing}, so the partition cannot be opened.",
            reason="PartitionNotVisible",
        )
    path = f"/dev/{_NAME}/nvidia-cap{minor}"
    return spec.DeviceNode(
        path=path,
        host_path=root.on_node(root.resolve(path)),
        type="c",
        major=major,
        minor=minor,
        permissions="rw",
    )


def _number(pattern: re.Pattern[str], text: str | None) -> int | None:
    found = pattern.search(text or "")
    return int(found[1]) if found is not None else None
