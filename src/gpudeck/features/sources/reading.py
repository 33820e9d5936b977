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
    node_name: str = ""
    """What the feature system.name says; empty: nothing."""


class Reading(msgspec.Struct, frozen=True):
    """What one look at the host gave."""

    known: Known
    left_out: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    """Sources that gave nothing: what they gave before still holds, and is in `known`."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """What rules of the node itself give it."""


def read(root: Root, wanted: Wanted, before: Reading | None = None) -> Reading:
    """Read the sources that are wanted; blocks on files of the host.

    `before` is the last look: a source that fails now keeps what it gave then.
    """
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
            found = _of_source(before.known, name) if before is not None else Known()
        known.flags.update(found.flags)
        known.attributes.update(found.attributes)
        known.instances.update(found.instances)
    if wanted.node_name:
        known.attributes["system.name"] = {"nodename": wanted.node_name}
    labels: dict[str, str] = {}
    if "custom" in wanted.sources:
        try:
            labels, refused = custom.labels(root, known, wanted.rules)
            left_out += [f"custom: {each}" for each in refused]
        except errors.GpudeckError as error:
            left_out.append(f"custom: {error.message}")
            failed.append("custom")
            labels = before.labels if before is not None else {}
    return Reading(known, tuple(left_out), tuple(failed), labels)


def _of_source(known: Known, name: str) -> Known:
    def kept(found: dict[str, T]) -> dict[str, T]:
        return {each: part for each, part in found.items() if each.startswith(f"{name}.")}

    return Known(kept(known.flags), kept(known.attributes), kept(known.instances))
