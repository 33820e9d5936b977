# SPDX-License-Identifier: Apache-2.0
"""Whether a card is a virtual GPU, and the driver of the host that lends it.

NVIDIA's virtual GPUs say so in the vendor-specific capability of their PCI configuration space:
after its header the bytes `VF`, then records of a type, a length and text. Record 0 holds
version and branch of the host's driver, ten bytes each (gpu-feature-discovery 0.20).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpudeck import errors
from gpudeck.host import pci
from gpudeck.host.root import Root

_STATUS, _HAS_CAPABILITIES = 0x06, 0x10
_FIRST_CAPABILITY = 0x34
_VENDOR_SPECIFIC = 0x09
_SIGNATURE, _SIGNATURE_AT, _RECORDS_AT = b"VF", 3, 5
_DRIVER_RECORD = 0
_TEXT = 10
_SPACE = 256


class HostDriver(msgspec.Struct, frozen=True):
    """What the host says of itself; empty where it says nothing."""

    version: str = ""
    branch: str = ""


def read(root: Root, addresses: Iterable[str]) -> tuple[HostDriver, ...]:
    """Read the cards at these addresses; one that cannot be read is taken for no virtual GPU."""
    found = []
    for address in addresses:
        try:
            space = root.read_bytes(f"{pci.DEVICES}/{address}/config", limit=_SPACE)
        except errors.GpudeckError:
            continue
        told = parse(space)
        if told is not None:
            found.append(told)
    return tuple(found)


def parse(space: bytes) -> HostDriver | None:
    """Return what a configuration space says; None where the card is no virtual GPU.

    Without privilege the kernel shows 64 bytes, in which no capability lies.
    """
    capability = _vendor_specific(space)
    if capability[_SIGNATURE_AT:_RECORDS_AT] != _SIGNATURE:
        return None
    at = _RECORDS_AT
    while at + 2 <= len(capability):
        kind, length = capability[at], capability[at + 1]
        if kind == _DRIVER_RECORD:
            text = capability[at + 2 : at + 2 + 2 * _TEXT]
            return HostDriver(_text(text[:_TEXT]), _text(text[_TEXT:]))
        at += max(length, 2)
    return HostDriver()


def _vendor_specific(space: bytes) -> bytes:
    """The capability with that id, all its bytes; empty where there is none."""
    if len(space) < _SPACE or not space[_STATUS] & _HAS_CAPABILITIES:
        return b""
    at, seen = space[_FIRST_CAPABILITY] & 0xFC, set()
    while at and at not in seen and at + 2 < len(space):
        seen.add(at)
        if space[at] == _VENDOR_SPECIFIC:
            return space[at : at + space[at + 2]]
        at = space[at + 1] & 0xFC
    return b""


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("ascii", "replace").strip()
