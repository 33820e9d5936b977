# SPDX-License-Identifier: Apache-2.0
"""The identities of cards: PCI addresses and UUIDs, parsed at the edge and compared as values.

A PCI address names the place of a card and is stable over reboots; a UUID names
the card itself and moves with it. Both come in several spellings: sysfs writes
four digits of domain, NVML eight (`00000000:1B:00.0`); one `parse` reads all of
them, one `__str__` writes the form of sysfs.
"""

from __future__ import annotations

import dataclasses
import re

from gpudeck.errors import InvalidError

_ADDRESS = re.compile(
    r"(?:(?P<domain>[0-9a-f]{1,8})[:-])?(?P<bus>[0-9a-f]{2})[:-](?P<device>[01][0-9a-f])[.-](?P<function>[0-7])",
    re.ASCII | re.IGNORECASE,
)
_UUID = re.compile(
    r"(?P<kind>GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    re.ASCII | re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True, order=True, slots=True)
class PciAddress:
    """Domain, bus, device and function; ordered as `lspci` lists them."""

    domain: int
    bus: int
    device: int
    function: int

    @classmethod
    def parse(cls, text: str) -> PciAddress:
        """Read `0000:1b:00.0`, `00000000:1B:00.0`, `1b:00.0` or the dashed form of names.

        Raises InvalidError.
        """
        match = _ADDRESS.fullmatch(text.strip())
        if match is None:
            allowed = "domain:bus:device.function in hexadecimal, e.g. 0000:1b:00.0"
            raise InvalidError(
                f"PCI address {text!r} is not valid; allowed: {allowed}",
                reason="InvalidPciAddress",
                allowed=allowed,
            )
        return cls(*(int(part or "0", 16) for part in match.groups()))

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"

    @property
    def dashed(self) -> str:
        """The address as a part of object names: `0000-1b-00-0`."""
        return f"{self.domain:04x}-{self.bus:02x}-{self.device:02x}-{self.function:x}"


@dataclasses.dataclass(frozen=True, order=True, slots=True)
class GpuUuid:
    """The UUID of a card (`GPU-…`) or of a partition (`MIG-…`), hexadecimal in lower case."""

    text: str

    @classmethod
    def parse(cls, text: str) -> GpuUuid:
        """Read a UUID in any case. Raises InvalidError."""
        stripped = text.strip()
        match = _UUID.fullmatch(stripped)
        if match is None:
            allowed = "GPU- or MIG- and a UUID"
            raise InvalidError(
                f"UUID {text!r} is not valid; allowed: {allowed}",
                reason="InvalidUuid",
                allowed=allowed,
            )
        return cls(stripped[:3].upper() + stripped[3:].lower())

    def __str__(self) -> str:
        return self.text

    @property
    def is_partition(self) -> bool:
        return self.text.startswith("MIG-")
