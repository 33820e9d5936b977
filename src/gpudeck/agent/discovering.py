# SPDX-License-Identifier: Apache-2.0
"""Which PCI functions are cards, and which vendor names the node.

Pure. A card is function 0 of its slot, of a supported class and vendor, and no virtual
function: the audio, USB and serial functions beside a display controller belong to the
same card, and virtual functions are parts of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gpudeck.agent.supported import Supported
from gpudeck.api import names
from gpudeck.api.v1alpha1.physicalgpu import DriverType
from gpudeck.devices.identities import PciAddress
from gpudeck.host import pci

# Kernel drivers by the value of status.currentState.driverType. nvgrace_gpu_vfio_pci is
# the variant of vfio-pci for Grace superchips (drivers/vfio/pci/nvgrace-gpu, Linux 6.10).
_DRIVERS = {
    "nvidia": DriverType.NVIDIA,
    "vfio-pci": DriverType.VFIO,
    "nvgrace_gpu_vfio_pci": DriverType.VFIO,
    "metax": DriverType.METAX,
    "mx": DriverType.METAX,
    "mxgpu": DriverType.METAX,
}


class Card(msgspec.Struct, frozen=True):
    """A card of this node."""

    device: pci.PciDevice
    vendor: str
    """The name of the vendor as the labels carry it."""

    @property
    def address(self) -> PciAddress:
        """Its place on the bus, stable over reboots."""
        return PciAddress.parse(self.device.address)

    @property
    def driver_type(self) -> DriverType:
        """By the kernel driver that is bound; None of ours counts as none."""
        return _DRIVERS.get(self.device.driver or "", DriverType.NONE)


class Inventory(msgspec.Struct, frozen=True):
    """What one complete look at the bus says of this node, by PhysicalGPU name."""

    cards: dict[str, Card]
    unreadable: dict[str, str]
    """Why a function that is on the bus could not be read; it may be a card or not."""
    present: frozenset[str]
    """The names that the functions on the bus have or would have."""


def inventory(node: str, scan: pci.Scan, supported: Supported) -> Inventory:
    """Pick the cards out of a scan."""
    cards = {}
    for device in scan.devices:
        if not supported.accepts(device.class_code, device.vendor):
            continue
        if device.function == 0 and not device.is_virtual_function:
            card = Card(device, supported.vendors[device.vendor])
            cards[names.physical_gpu_name(node, card.address)] = card
    return Inventory(
        cards=cards,
        unreadable={_name(node, each.address): each.message for each in scan.failures},
        present=frozenset(_name(node, address) for address in scan.present),
    )


def _name(node: str, address: str) -> str:
    return names.physical_gpu_name(node, PciAddress.parse(address))


def node_vendor(cards: Mapping[str, Card], supported: Supported) -> str | None:
    """The value of the node's vendor label; None where there is no card.

    A label has one value, so on a node with cards of several vendors it names the one
    with the most cards, and of equals the first in the ConfigMap.
    """
    present = [name for name in supported.vendors.values() if _count(cards.values(), name)]
    return max(present, key=lambda name: _count(cards.values(), name), default=None)


def _count(cards: Iterable[Card], vendor: str) -> int:
    return sum(card.vendor == vendor for card in cards)
