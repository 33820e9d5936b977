# SPDX-License-Identifier: Apache-2.0
"""What the PCI configuration space of a virtual GPU says, and what a damaged one does not."""

from __future__ import annotations

from pathlib import Path

from gpudeck.gfd import virtual
from gpudeck.host.root import Root

ADDRESS = "0000:1b:00.0"


def capability(signature: bytes, records: bytes) -> bytes:
    """A space with a power capability at 0x40 and a vendor-specific one at 0x60."""
    made = bytearray(256)
    made[0x06], made[0x34] = 0x10, 0x40
    made[0x40:0x42] = bytes([0x01, 0x60])
    content = bytes([0x09, 0x00, 5 + len(records)]) + signature + records
    made[0x60 : 0x60 + len(content)] = content
    return bytes(made)


def record(kind: int, content: bytes) -> bytes:
    return bytes([kind, 2 + len(content)]) + content


DRIVER = record(0, b"550.90.05".ljust(10, b"\0") + b"r550_00".ljust(10, b"\0"))


def test_version_and_branch_of_the_hosts_driver() -> None:
    told = virtual.parse(capability(b"VF", record(1, b"abc") + DRIVER))
    assert told == virtual.HostDriver("550.90.05", "r550_00")


def test_a_virtual_gpu_that_does_not_tell_is_one_all_the_same() -> None:
    assert virtual.parse(capability(b"VF", record(1, b"abc"))) == virtual.HostDriver()


def test_a_card_is_none() -> None:
    assert virtual.parse(capability(b"xx", DRIVER)) is None
    assert virtual.parse(bytes(256)) is None
    assert virtual.parse(b"") is None


def test_a_ring_of_capabilities_ends() -> None:
    ring = bytearray(capability(b"VF", DRIVER))
    ring[0x41] = 0x40
    assert virtual.parse(bytes(ring)) is None


def test_records_without_length_end() -> None:
    assert virtual.parse(capability(b"VF", bytes([7, 0, 7, 0]))) == virtual.HostDriver()


def test_cards_are_read_below_the_hosts_root(tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/devices" / ADDRESS
    folder.mkdir(parents=True)
    (folder / "config").write_bytes(capability(b"VF", DRIVER))
    found = virtual.read(Root(tmp_path), [ADDRESS, "0000:ff:00.0"])
    assert found == (virtual.HostDriver("550.90.05", "r550_00"),)
