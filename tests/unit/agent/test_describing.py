# SPDX-License-Identifier: Apache-2.0
"""What an object says of its card, and which name its device label carries."""

from __future__ import annotations

from gpudeck.agent import describing, discovering
from gpudeck.api import labels
from gpudeck.api.meta import ObjectMeta, OwnerReference
from gpudeck.api.v1alpha1.physicalgpu import Capabilities, PhysicalGPU, PhysicalGPUStatus
from gpudeck.host import osrelease, pci, pciids

CARD = discovering.Card(
    pci.PciDevice(
        address="0000:1b:00.0",
        class_code=0x030200,
        vendor=0x10DE,
        device=0x2330,
        numa_node=0,
        pcie_root="pci0000:15",
        driver="nvidia",
    ),
    "nvidia",
)
BOOK = pciids.Names(
    vendors={0x10DE: "NVIDIA Corporation"},
    devices={(0x10DE, 0x2330): "GH100 [H100 SXM5 80GB]"},
    classes={0x0302: "3D controller"},
)
NODE = OwnerReference(api_version="v1", kind="Node", name="node-0", uid="u")


def device_label(book: pciids.Names, known: PhysicalGPU | None = None) -> str:
    made = describing.metadata("node-0-0000-1b-00-0", CARD, node=NODE, book=book, known=known)
    assert made.labels is not None
    return made.labels[labels.DEVICE]


def known(*, product: str | None, label: str = "as-it-was") -> PhysicalGPU:
    return PhysicalGPU(
        metadata=ObjectMeta(labels={labels.DEVICE: label}),
        status=PhysicalGPUStatus(
            pci_info=describing.pci_facts(CARD, BOOK),
            capabilities=Capabilities(product_name=product) if product else None,
        ),
    )


def test_the_name_in_brackets_is_the_model_until_the_adapter_says_more() -> None:
    assert device_label(BOOK) == "h100-sxm5-80gb"
    assert device_label(BOOK, known(product="NVIDIA H100 80GB HBM3")) == "h100-80gb-hbm3"


def test_the_model_stays_while_the_adapter_is_away() -> None:
    assert device_label(BOOK, known(product=None, label="h100-80gb-hbm3")) == "h100-80gb-hbm3"


def test_another_card_in_the_same_place_gets_its_own_model() -> None:
    other = known(product=None)
    assert other.status is not None
    assert other.status.pci_info is not None
    assert other.status.pci_info.device is not None
    other.status.pci_info.device.id = "20b5"
    assert device_label(BOOK, other) == "h100-sxm5-80gb"


def test_without_a_name_the_numbers_are_the_model() -> None:
    assert device_label(pciids.Names()) == "10de-2330"


def test_the_status_says_what_the_host_says() -> None:
    host = describing.HostFacts(osrelease.OsRelease("ubuntu", "24.04", "Ubuntu 24.04"), "6.8", True)
    status = describing.status(CARD, "node-0", host=host, book=BOOK)
    assert status.pci_info is not None
    assert status.pci_info.class_ is not None
    assert (status.pci_info.class_.code, status.pci_info.class_.name) == ("0302", "3D controller")
    assert status.node_info is not None
    assert status.node_info.bare_metal is True
    assert status.current_state is not None
    assert status.current_state.driver_type == "Nvidia"
    assert status.conditions is not None
    assert [(each.type, each.status, each.reason) for each in status.conditions] == [
        ("Discovered", "True", "CardFound")
    ]
