# SPDX-License-Identifier: Apache-2.0
"""Which functions are cards, which driver they have, and which vendor names the node."""

from __future__ import annotations

import pytest

from gpudeck.agent import discovering
from gpudeck.agent.supported import DEFAULT
from gpudeck.api.v1alpha1.physicalgpu import DriverType
from gpudeck.host import pci


def function(
    address: str,
    class_code: int = 0x030200,
    *,
    vendor: int = 0x10DE,
    driver: str | None = None,
    is_virtual: bool = False,
) -> pci.PciDevice:
    return pci.PciDevice(
        address=address,
        class_code=class_code,
        vendor=vendor,
        device=0x2330,
        driver=driver,
        is_virtual_function=is_virtual,
    )


def cards(*devices: pci.PciDevice) -> dict[str, discovering.Card]:
    return discovering.inventory("node-0", pci.Scan(devices, ()), DEFAULT).cards


def test_a_card_with_four_functions_is_one_card() -> None:
    found = cards(
        function("0000:3b:00.0", 0x030000),
        function("0000:3b:00.1", 0x040300),
        function("0000:3b:00.2", 0x0C0330),
        function("0000:3b:00.3", 0x0C8000),
        function("0000:81:00.0"),
    )
    assert sorted(found) == ["node-0-0000-3b-00-0", "node-0-0000-81-00-0"]


def test_a_second_display_function_is_not_a_second_card() -> None:
    assert len(cards(function("0000:3b:00.0"), function("0000:3b:00.1"))) == 1


def test_virtual_functions_are_not_cards() -> None:
    # With 8 functions a slot, the ninth virtual function is function 0 of the next device.
    assert len(cards(function("0000:41:00.0"), function("0000:41:01.0", is_virtual=True))) == 1


def test_other_vendors_and_switches_are_not_cards() -> None:
    assert cards(function("0000:02:00.0", vendor=0x1A03), function("0000:03:00.0", 0x068000)) == {}


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("nvidia", DriverType.NVIDIA),
        ("vfio-pci", DriverType.VFIO),
        ("nvgrace_gpu_vfio_pci", DriverType.VFIO),
        ("metax", DriverType.METAX),
        ("nouveau", DriverType.NONE),
        (None, DriverType.NONE),
    ],
)
def test_the_bound_driver_is_told(driver: str | None, expected: DriverType) -> None:
    card = discovering.Card(function("0000:1b:00.0", driver=driver), "nvidia")
    assert card.driver_type is expected


def test_failures_and_presence_are_kept_by_object_name() -> None:
    scan = pci.Scan(
        (), (pci.Failure("0000:1b:00.0", "class: Input/output error"),), ("0000:1b:00.0",)
    )
    found = discovering.inventory("node-0", scan, DEFAULT)
    assert found.unreadable == {"node-0-0000-1b-00-0": "class: Input/output error"}
    assert found.present == {"node-0-0000-1b-00-0"}


def test_the_node_is_named_after_the_vendor_with_most_cards() -> None:
    two_metax = cards(
        function("0000:01:00.0"),
        function("0000:02:00.0", 0x120000, vendor=0x9999),
        function("0000:03:00.0", 0x120000, vendor=0x9999),
    )
    assert discovering.node_vendor(two_metax, DEFAULT) == "metax"


def test_of_equals_the_first_in_the_list_names_the_node() -> None:
    one_each = cards(function("0000:01:00.0", 0x120000, vendor=0x9999), function("0000:02:00.0"))
    assert discovering.node_vendor(one_each, DEFAULT) == "nvidia"
    assert discovering.node_vendor({}, DEFAULT) is None
