# SPDX-License-Identifier: Apache-2.0
"""What PCI numbers are called, from the pci.ids file of the host or of the image.

`Book.names` is asked with the devices of a scan and reads the file, a megabyte and a
half, line by line only when a number is new or the file was replaced; in memory it
keeps the names asked for and nothing else. A host without the file costs nothing but
the names: the numbers stand on their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gpudeck.host.pci import PciDevice
from gpudeck.host.root import Root

PATHS = (
    "/usr/share/hwdata/pci.ids",
    "/usr/share/misc/pci.ids",
    "/usr/share/pci.ids",
    "/usr/share/pciids/pci.ids",
)


class Numbers(msgspec.Struct, frozen=True):
    """What to look up: vendors, (vendor, device) pairs and 16-bit classes."""

    vendors: frozenset[int]
    devices: frozenset[tuple[int, int]]
    classes: frozenset[int]


class Names(msgspec.Struct):
    """The names found, by number; classes by base class and sub-class, e.g. 0x0302."""

    vendors: dict[int, str] = msgspec.field(default_factory=dict)
    devices: dict[tuple[int, int], str] = msgspec.field(default_factory=dict)
    classes: dict[int, str] = msgspec.field(default_factory=dict)


class Book:
    """Looks numbers up in the first pci.ids that one of `roots` has, the host's first."""

    def __init__(self, *roots: Root) -> None:
        self._roots = roots
        self._source: object = None
        self._asked = Numbers(frozenset(), frozenset(), frozenset())
        self._names = Names()

    def names(self, devices: Iterable[PciDevice]) -> Names:
        """The names of `devices` and their classes; empty where no file is readable."""
        asked = numbers(devices)
        found = self._find()
        source = None if found is None else (found, found[0].stamp(found[1]))
        if source != self._source or asked != self._asked:
            self._names = Names() if found is None else _read(*found, asked)
            self._source, self._asked = source, asked
        return self._names

    def _find(self) -> tuple[Root, str] | None:
        for root in self._roots:
            for path in PATHS:
                if root.exists(path):
                    return root, path
        return None


def numbers(devices: Iterable[PciDevice]) -> Numbers:
    """The numbers of `devices` that have names in pci.ids."""
    each = tuple(devices)
    return Numbers(
        vendors=frozenset(device.vendor for device in each),
        devices=frozenset((device.vendor, device.device) for device in each),
        classes=frozenset(device.class_code >> 8 for device in each),
    )


def bracket_name(device_name: str) -> str:
    """The product in a device's name: `GH100 [H100 SXM5 80GB]` → `H100 SXM5 80GB`.

    The last pair of brackets counts; a name without brackets is the product itself.
    """
    head, bracket, tail = device_name.rpartition("[")
    product = tail.partition("]")[0].strip() if bracket else ""
    return product or head.strip() or device_name.strip()


def _read(root: Root, path: str, asked: Numbers) -> Names:
    try:
        with root.real(path).open(encoding="utf-8", errors="replace") as lines:
            return parse(lines, asked)
    except OSError:
        return Names()  # It went away or cannot be read; names are an ornament.


def parse(lines: Iterable[str], asked: Numbers) -> Names:
    """Pick the names of `asked` out of pci.ids lines; a malformed line is passed over.

    Vendors and, behind a `C `, classes stand at the margin, devices and sub-classes
    behind one tab, subsystems and programming interfaces behind two.
    """
    names = Names()
    vendor: int | None = None
    base: int | None = None
    for depth, number, name in _entries(lines):
        if depth == 0:
            is_class = number.startswith("C ")
            vendor = None if is_class else _hex(number)
            base = _hex(number[2:]) if is_class else None
            if vendor is not None and vendor in asked.vendors:
                names.vendors[vendor] = name
            elif vendor is not None:
                vendor = None
            continue
        low = _hex(number)
        if low is None:
            continue
        if vendor is not None and (vendor, low) in asked.devices:
            names.devices[vendor, low] = name
        elif base is not None and (base << 8 | low) in asked.classes:
            names.classes[base << 8 | low] = name
    return names


def _entries(lines: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """(depth 0 or 1, number, name) of each line; comments and depth 2 are left out."""
    for line in lines:
        if line.startswith(("#", "\t\t", "\n")):
            continue
        number, blank, name = line.strip().partition("  ")
        if blank:
            yield int(line.startswith("\t")), number, name.strip()


def _hex(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None
