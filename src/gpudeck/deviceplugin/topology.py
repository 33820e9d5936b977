# SPDX-License-Identifier: Apache-2.0
"""How well two cards of a node are connected, as one number.

Pure. The order is that of NVIDIA's allocator (go-gpuallocator, as used by the device
plugin 0.20): each NVLink between two cards counts more than any way over PCIe. Links
that end in a switch lead to every card of the node that has such links; between two
of those there are as many as the one with fewer has.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpudeck.deviceplugin import offering
from gpudeck.vendors import contract

NVLINK = 100
SAME_ROOT = 40
SAME_NUMA_NODE = 20
OTHER_NUMA_NODE = 10


def scores(units: Iterable[offering.Unit]) -> dict[tuple[str, str], int]:
    """The score of every ordered pair of different cards, by id."""
    cards = list(units)
    return {
        (one.id, other.id): _pcie(one.site, other.site) + NVLINK * links(one.card, other.card)
        for one in cards
        for other in cards
        if one.id != other.id
    }


def links(one: contract.CardReading, other: contract.CardReading) -> int:
    """NVLinks from card to card; directly, or by way of switches."""
    direct = max(_to(one, other.address), _to(other, one.address))
    return direct or min(_to(one, ""), _to(other, ""))


def _to(card: contract.CardReading, peer: str) -> int:
    return sum(each.count for each in card.links if each.peer == peer)


def _pcie(one: contract.Site, other: contract.Site) -> int:
    if one.pcie_root is not None and one.pcie_root == other.pcie_root:
        return SAME_ROOT
    if one.numa_node is not None and other.numa_node is not None:
        return SAME_NUMA_NODE if one.numa_node == other.numa_node else OTHER_NUMA_NODE
    return OTHER_NUMA_NODE
