# SPDX-License-Identifier: Apache-2.0
"""Read all sources of features, each for itself; the worker calls it in a thread."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

import msgspec

from gpudeck import errors
from gpudeck.features.known import Known
from gpudeck.features.rules.evaluating import Named
from gpudeck.features.sources import (
    cpu,
    custom,
    kernel,
    local,
    memory,
    network,
    pci,
    storage,
    system,
    usb,
)
from gpudeck.host.root import Root

T = TypeVar("T")
SOURCES: dict[str, Callable[..., list[str]]] = {
    "cpu": cpu.read,
    "kernel": kernel.read,
    "local": local.read,
    "memory": memory.read,
    "network": network.read,
    "pci": pci.read,
    "storage": storage.read,
    "system": system.read,
    "usb": usb.read,
}
"""Each adds to the Known and returns what it had to leave out, one sentence each."""


class Wanted(msgspec.Struct, frozen=True):
    """What is read."""

    sources: Collection[str] = ()
    kernel_config: str = ""
    """The kernel's configuration; empty: where it usually stands."""
    rules: tuple[Named, ...] = ()
    """Of the source custom, besides those of custom.d."""


class Reading(msgspec.Struct, frozen=True):
    """What one look at the host gave."""

    known: Known
    left_out: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    """Sources that gave nothing: what they gave before still holds."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """What rules of the node itself give it."""


def read(root: Root, wanted: Wanted) -> Reading:
    """Read the sources that are wanted; blocks on files of the host."""
    root = root.look()
    known, left_out, failed = Known(), [], []
    for name, source in SOURCES.items():
        if name not in wanted.sources:
            continue
        found = Known()
        try:
            more = {"config": wanted.kernel_config} if name == "kernel" else {}
            left_out += [f"{name}: {each}" for each in source(root, found, **more)]
        except errors.GpudeckError as error:
            left_out.append(f"{name}: {error.message}")
            failed.append(name)
            continue
        known.flags.update(found.flags)
        known.attributes.update(found.attributes)
        known.instances.update(found.instances)
    labels: dict[str, str] = {}
    if "custom" in wanted.sources:
        labels, refused = custom.labels(root, known, wanted.rules)
        left_out += [f"custom: {each}" for each in refused]
    return Reading(known, tuple(left_out), tuple(failed), labels)


def keep_failed(now: Reading, before: Reading | None) -> Known:
    """What is known if sources that failed now still have what they had before."""
    if before is None or not now.failed:
        return now.known
    prefixes = tuple(f"{name}." for name in now.failed)
    return Known(
        flags=_merged(before.known.flags, now.known.flags, prefixes),
        attributes=_merged(before.known.attributes, now.known.attributes, prefixes),
        instances=_merged(before.known.instances, now.known.instances, prefixes),
    )


def _merged(old: dict[str, T], new: dict[str, T], prefixes: tuple[str, ...]) -> dict[str, T]:
    return {**{name: part for name, part in old.items() if name.startswith(prefixes)}, **new}
