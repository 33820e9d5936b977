# SPDX-License-Identifier: Apache-2.0
"""See at small cost that the cards may have changed: a sight is only a reason to read them.

Read are names and short texts of /proc and /sys: the driver's version, the MIG instances that the
driver lists as capabilities, the PCI bus. A MIG mode that changes while a card has no instance
shows in none of them, so cards that have a MIG mode are read often anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from gpudeck import errors
from gpudeck.host import pci
from gpudeck.host.root import Root

_VERSION = "/proc/driver/nvidia/version"
_CAPABILITIES = "/proc/driver/nvidia/capabilities"
_ATTENTIVE_SECONDS = 20.0
"""A change ordinarily comes in steps: instances, then modes; a driver, then its cards."""

Sight: TypeAlias = tuple[object, ...]


async def watch(
    root: Root, changed: Callable[[], None], *, seconds: float, longest: Callable[[], float]
) -> None:
    """Call `changed` when the cards may have changed, for ever.

    Looks every `seconds`; `longest` says after how long `changed` is called without a reason.
    """
    loop = asyncio.get_running_loop()
    before = await asyncio.to_thread(look, root)
    called = loop.time()
    attentive_until = 0.0
    while True:
        await asyncio.sleep(seconds)
        sight, now = await asyncio.to_thread(look, root), loop.time()
        if sight != before:
            before = sight
            attentive_until = now + _ATTENTIVE_SECONDS
        if now < attentive_until or now - called >= longest():
            called = now
            changed()


def look(root: Root) -> Sight:
    """What is to be seen now; equal where nothing has changed."""
    root = root.look()
    return (
        _names(root, pci.DEVICES),
        _text(root, _VERSION),
        tuple(
            (card, _instances(root, f"{_CAPABILITIES}/{card}/mig"))
            for card in _names(root, _CAPABILITIES)
            if card.startswith("gpu")
        ),
    )


def _instances(root: Root, folder: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The GPU instances of a card, and the compute instances of each."""
    return tuple((name, _names(root, f"{folder}/{name}")) for name in _names(root, folder))


def _names(root: Root, folder: str) -> tuple[str, ...]:
    try:
        return tuple(root.list(folder))
    except errors.GpudeckError:
        return ()


def _text(root: Root, path: str) -> str:
    try:
        return root.read_text(path, limit=4096)
    except errors.GpudeckError:
        return ""
