# SPDX-License-Identifier: Apache-2.0
"""PCI scan: what is read, what is left out, and that one bad device is only one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck.host import pci
from gpudeck.host.root import Root

BRIDGE = "pci0000:15"


def add(root: Path, address: str, *, under: str = f"/sys/devices/{BRIDGE}", **values: str) -> Path:
    """Put a function on the bus as the kernel shows it; a value of "" leaves the file out."""
    folder = root / under.lstrip("/") / address
    folder.mkdir(parents=True)
    defaults = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330", "numa_node": "1"}
    for name, value in {**defaults, **values}.items():
        if value:
            (folder / name).write_text(value + "\n")
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / address).symlink_to(f"../../../..{under}/{address}")
    return folder


def test_a_card_is_read_with_its_links(tmp_path: Path) -> None:
    folder = add(tmp_path, "0000:1b:00.0", subsystem_vendor="0x10de", subsystem_device="0x16c1")
    (folder / "driver").symlink_to("../../../bus/pci/drivers/nvidia")
    (folder / "iommu_group").symlink_to("../../../kernel/iommu_groups/61")
    (device,) = pci.scan(Root(tmp_path)).devices
    assert device == pci.PciDevice(
        address="0000:1b:00.0",
        class_code=0x030200,
        vendor=0x10DE,
        device=0x2330,
        subsystem_vendor=0x10DE,
        subsystem_device=0x16C1,
        numa_node=1,
        iommu_group=61,
        pcie_root=BRIDGE,
        driver="nvidia",
        functions=("0000:1b:00.0",),
    )


def test_numa_node_minus_one_is_unknown(tmp_path: Path) -> None:
    add(tmp_path, "000f:01:00.0", numa_node="-1")
    assert pci.scan(Root(tmp_path)).devices[0].numa_node is None


def test_missing_attributes_are_left_out_and_the_device_stays(tmp_path: Path) -> None:
    add(tmp_path, "0000:1b:00.0", numa_node="")
    (device,) = pci.scan(Root(tmp_path)).devices
    assert (device.numa_node, device.iommu_group, device.driver) == (None, None, None)


def test_a_bridge_below_a_platform_folder_is_found(tmp_path: Path) -> None:
    add(tmp_path, "000f:01:00.0", under="/sys/devices/platform/soc/pci000f:00")
    assert pci.scan(Root(tmp_path)).devices[0].pcie_root == "pci000f:00"


def test_one_bad_device_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = add(tmp_path, "0000:1b:00.0")
    (folder / "class").unlink()
    (folder / "class").mkdir()  # Reading it is an error, as EIO of a sick device is.
    add(tmp_path, "0000:43:00.0", **{"class": ""})
    add(tmp_path, "0000:52:00.0", vendor="garbage")
    add(tmp_path, "0000:61:00.0")
    found = pci.scan(Root(tmp_path))
    assert [device.address for device in found.devices] == ["0000:61:00.0"]
    assert [failure.address for failure in found.failures] == [
        "0000:1b:00.0",
        "0000:43:00.0",
        "0000:52:00.0",
    ]
    assert "'garbage' is not a number" in found.failures[2].message


def test_all_functions_of_a_slot_are_listed(tmp_path: Path) -> None:
    add(tmp_path, "0000:3b:00.0", **{"class": "0x030000"})
    add(tmp_path, "0000:3b:00.1", **{"class": "0x040300"})
    add(tmp_path, "0000:3b:01.0", **{"class": "0x0c0330"})
    scan = pci.scan(Root(tmp_path), lambda class_code, vendor: class_code >> 16 == 3)
    (device,) = scan.devices
    assert device.functions == ("0000:3b:00.0", "0000:3b:00.1")
    assert (device.slot, device.function) == ("0000:3b:00", 0)


def test_a_virtual_function_is_marked(tmp_path: Path) -> None:
    folder = add(tmp_path, "0000:41:00.4")
    (folder / "physfn").symlink_to("../0000:41:00.0")
    assert pci.scan(Root(tmp_path)).devices[0].is_virtual_function


@pytest.mark.parametrize("name", ["bonding_masters", "0000:1B:00.0", "1b:00.0"])
def test_names_that_are_no_addresses_are_passed_over(tmp_path: Path, name: str) -> None:
    (tmp_path / "sys/bus/pci/devices" / name).mkdir(parents=True)
    assert pci.scan(Root(tmp_path)) == pci.Scan((), ())


def test_a_host_without_a_pci_bus_has_no_devices(tmp_path: Path) -> None:
    assert pci.scan(Root(tmp_path)) == pci.Scan((), ())


def test_a_device_that_vanishes_while_it_is_read_is_no_failure(tmp_path: Path) -> None:
    bus = tmp_path / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    (bus / "0000:1b:00.0").symlink_to(f"../../../devices/{BRIDGE}/0000:1b:00.0")
    found = pci.scan(Root(tmp_path))
    assert (found.devices, found.failures) == ((), ())
