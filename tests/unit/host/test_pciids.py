# SPDX-License-Identifier: Apache-2.0
"""pci.ids: what is picked out, from which file, and how products are read from brackets."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck.host import pci, pciids
from gpudeck.host.root import Root

TEXT = """\
#\tA comment
10de  NVIDIA Corporation
\t2330  GH100 [H100 SXM5 80GB]
\t\t10de 16c1  H100 SXM5 80GB
\t20b5  GA100 [A100 PCIe 80GB]
8086  Intel Corporation
\t2330  DH89xxCC Series
garbage line without two blanks
zzzz  Not a number
C 03  Display controller
\t00  VGA compatible controller
\t\t00  VGA controller
\t02  3D controller
"""


def card(device: int = 0x2330, vendor: int = 0x10DE) -> pci.PciDevice:
    return pci.PciDevice(address="0000:1b:00.0", class_code=0x030200, vendor=vendor, device=device)


def test_only_what_was_asked_for_is_kept() -> None:
    names = pciids.parse(TEXT.splitlines(keepends=True), pciids.numbers([card()]))
    assert names == pciids.Names(
        vendors={0x10DE: "NVIDIA Corporation"},
        devices={(0x10DE, 0x2330): "GH100 [H100 SXM5 80GB]"},
        classes={0x0302: "3D controller"},
    )


def test_a_number_that_is_not_in_the_file_has_no_name() -> None:
    names = pciids.parse(TEXT.splitlines(keepends=True), pciids.numbers([card(0xFFFF, 0x9999)]))
    assert (names.vendors, names.devices) == ({}, {})


def test_the_hosts_file_is_preferred_and_a_new_one_is_noticed(tmp_path: Path) -> None:
    host, image = tmp_path / "host", tmp_path / "image"
    for root, vendor in ((host, "Of the host"), (image, "Of the image")):
        (root / "usr/share/misc").mkdir(parents=True)
        (root / "usr/share/misc/pci.ids").write_text(f"10de  {vendor}\n")
    book = pciids.Book(Root(host), Root(image))
    assert book.names([card()]).vendors[0x10DE] == "Of the host"
    Root(host).write_atomic("/usr/share/misc/pci.ids", b"10de  Of another day\n")
    assert book.names([card()]).vendors[0x10DE] == "Of another day"
    Root(host).unlink("/usr/share/misc/pci.ids")
    assert book.names([card()]).vendors[0x10DE] == "Of the image"


def test_without_any_file_there_are_no_names(tmp_path: Path) -> None:
    assert pciids.Book(Root(tmp_path)).names([card()]) == pciids.Names()


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("GH100 [H100 SXM5 80GB]", "H100 SXM5 80GB"),
        ("AD102GL [L40S]", "L40S"),
        ("Device [a] [b]", "b"),
        ("Plain name", "Plain name"),
        ("GH100 []", "GH100"),
        ("GH100 [cut off", "cut off"),
    ],
)
def test_the_product_stands_in_the_last_brackets(name: str, product: str) -> None:
    assert pciids.bracket_name(name) == product
