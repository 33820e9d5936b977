# SPDX-License-Identifier: Apache-2.0
"""What the object of a card should say, as far as the node agent owns it.

Pure: from a card, the names of its numbers and the facts of the host to labels, nodeInfo,
pciInfo, driverType and the condition Discovered.
"""

from __future__ import annotations

import msgspec

from gpudeck.agent.discovering import Card
from gpudeck.api import conditions, labels, names
from gpudeck.api.meta import Condition, ObjectMeta, OwnerReference
from gpudeck.api.v1alpha1.physicalgpu import (
    CurrentState,
    NodeFacts,
    OperatingSystem,
    PciClass,
    PciFacts,
    PciName,
    PhysicalGPU,
    PhysicalGPUStatus,
)
from gpudeck.host import osrelease, pciids, platform
from gpudeck.host.root import Root

CARD_FOUND = "CardFound"
"""Discovered=True: the card is on the bus and is described."""
CARD_LOST = "CardLost"
"""Discovered=False: the card is no longer on the bus."""
CARD_NOT_SUPPORTED = "CardNotSupported"
"""Discovered=False: it is on the bus, but not of a class and vendor of the ConfigMap."""
CARD_UNREADABLE = "CardUnreadable"
"""Discovered=Unknown: it is on the bus, but the kernel does not give its attributes."""


class HostFacts(msgspec.Struct, frozen=True):
    """What nodeInfo says of every card of the host."""

    os: osrelease.OsRelease
    kernel_release: str | None
    is_bare_metal: bool | None


def host_facts(root: Root) -> HostFacts:
    """Read the facts; what cannot be read is None."""
    return HostFacts(
        osrelease.read(root), platform.kernel_release(root), platform.is_bare_metal(root)
    )


def metadata(
    name: str,
    card: Card,
    *,
    node: OwnerReference,
    book: pciids.Names,
    known: PhysicalGPU | None,
) -> ObjectMeta:
    """Name, labels and owner of a card's object; `known` is the object as it is."""
    return ObjectMeta(
        name=name,
        labels={
            labels.NODE: names.node_label(node.name),
            labels.VENDOR: card.vendor,
            labels.DEVICE: _device_label(card, book, known),
        },
        owner_references=[node],
    )


def _device_label(card: Card, book: pciids.Names, known: PhysicalGPU | None) -> str:
    """The product's name if the adapter has said it, else the name in pci.ids, else the numbers.

    While the adapter is away the label stays, so selectors do not lose the card.
    """
    status = known.status if known is not None else None
    if status is not None and status.capabilities and status.capabilities.product_name:
        return names.device_label(status.capabilities.product_name)
    before = (known.metadata.labels or {}).get(labels.DEVICE) if known is not None else None
    if before and status is not None and status.pci_info == pci_facts(card, book):
        return before
    name = book.devices.get((card.device.vendor, card.device.device))
    from_name = names.device_label(pciids.bracket_name(name)) if name else ""
    return from_name or f"{card.device.vendor:04x}-{card.device.device:04x}"


def status(card: Card, node: str, *, host: HostFacts, book: pciids.Names) -> PhysicalGPUStatus:
    """The status of a card that is there; the condition has no time yet."""
    return PhysicalGPUStatus(
        node_info=NodeFacts(
            node_name=node,
            os=OperatingSystem(id=host.os.id, version=host.os.version, name=host.os.name),
            kernel_release=host.kernel_release,
            bare_metal=host.is_bare_metal,
        ),
        pci_info=pci_facts(card, book),
        current_state=CurrentState(driver_type=card.driver_type),
        conditions=[
            discovered(conditions.TRUE, CARD_FOUND, "The card is on the PCI bus of its node.")
        ],
    )


def pci_facts(card: Card, book: pciids.Names) -> PciFacts:
    """Address, numbers and names of a card."""
    device = card.device
    class_number = device.class_code >> 8
    return PciFacts(
        address=str(card.address),
        class_=PciClass(code=f"{class_number:04x}", name=book.classes.get(class_number)),
        vendor=PciName(id=f"{device.vendor:04x}", name=book.vendors.get(device.vendor)),
        device=PciName(
            id=f"{device.device:04x}", name=book.devices.get((device.vendor, device.device))
        ),
        numa_node=device.numa_node,
        iommu_group=device.iommu_group,
        pcie_root=device.pcie_root,
    )


def not_found(
    known: PhysicalGPUStatus | None, condition: Condition, since: str | None
) -> PhysicalGPUStatus:
    """The status of an object whose card is lost or unreadable: as it was, but for `condition`."""
    before = known or PhysicalGPUStatus()
    state = before.current_state
    return PhysicalGPUStatus(
        node_info=before.node_info,
        pci_info=before.pci_info,
        current_state=CurrentState(driver_type=state.driver_type) if state else None,
        conditions=[condition],
        lost_since=since,
    )


def discovered(value: str, reason: str, message: str) -> Condition:
    """The condition Discovered, without a time."""
    return Condition(type=conditions.DISCOVERED, status=value, reason=reason, message=message)
