# SPDX-License-Identifier: Apache-2.0
"""The features memory.numa, memory.swap, memory.hugepages and memory.nv."""

from __future__ import annotations

import re

from gpudeck import errors
from gpudeck.features.known import Known
from gpudeck.features.sources.attributes import Attributes
from gpudeck.host.root import Root

_NODES = "/sys/devices/system/node"
_HUGE = "/sys/kernel/mm/hugepages"
_NV = "/sys/bus/nd/devices"


def read(root: Root, known: Known) -> list[str]:
    """Add what the kernel says of memory."""
    attributes = Attributes(root)
    nodes = [name for name in root.list(_NODES) if re.fullmatch(r"node[0-9]+", name)]
    if nodes:
        known.attributes["memory.numa"] = {
            "is_numa": _word(len(nodes) > 1),
            "node_count": str(len(nodes)),
        }
    try:
        lines = [line for line in root.read_text("/proc/swaps").splitlines() if line.strip()]
        known.attributes["memory.swap"] = {"enabled": _word(len(lines) > 1)}
    except errors.NotFoundError:
        pass
    known.attributes["memory.hugepages"] = _huge_pages(root, attributes)
    known.instances["memory.nv"] = [
        {"name": name, **attributes.of(f"{_NV}/{name}", ("devtype", "mode"))}
        for name in root.list(_NV)
    ]
    return attributes.left_out


def _huge_pages(root: Root, attributes: Attributes) -> dict[str, str]:
    found = {}
    for name in root.list(_HUGE):
        size = re.fullmatch(r"hugepages-([0-9]+)kB", name)
        count = attributes.get(f"{_HUGE}/{name}/nr_hugepages")
        if size is not None and count is not None:
            found[f"hugepages-{_quantity(int(size[1]))}"] = count
    return {"enabled": _word(any(count != "0" for count in found.values())), **found}


def _quantity(kibibytes: int) -> str:
    for unit, power in (("Gi", 2), ("Mi", 1)):
        if kibibytes % 1024**power == 0:
            return f"{kibibytes // 1024**power}{unit}"
    return f"{kibibytes}Ki"


def _word(is_so: bool) -> str:
    return "true" if is_so else "false"
