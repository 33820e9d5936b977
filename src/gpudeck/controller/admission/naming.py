# SPDX-License-Identifier: Apache-2.0
"""Which extended resource names stand for which class, and who turns them into claims. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from gpudeck.api.resource import DeviceClass
from gpudeck.api.v1alpha1.gpuclass import GPUClass, asked_name
from gpudeck.controller.gpuclass import conflicts, deviceclass

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Names:
    """The classes by name, and those that pods ask for, by extended resource name."""

    classes: Mapping[str, GPUClass]
    """Those that claims get by their name: a DeviceClass of somebody else is not ours to judge."""
    asked: Mapping[str, GPUClass]
    rewritten: Mapping[str, GPUClass]
    """Those of `asked` that no scheduler serves: their pods get a claim from the webhook."""


def names_of(
    classes: Mapping[str, GPUClass],
    device_classes: Mapping[str, DeviceClass],
    *,
    may_be_plugins: Callable[[str], bool] = lambda name: False,
) -> Names:
    """Return the names of the classes whose DeviceClass stands.

    That the scheduler serves a name is seen by the DeviceClass that carries it: an API server
    without extended resources of DRA (before 1.36, by default) drops the field, and a class
    of shares with amounts of its own has it left out. A name that device plugins may offer is
    left to them then: a pod that was rewritten could not run on their nodes.
    """
    standing, asked, rewritten = {}, {}, {}
    rivals = _by_name(classes.values(), asked_name)
    mapped = _by_name(device_classes.values(), _mapped)
    for gpu_class in classes.values():
        name = asked_name(gpu_class)
        found = device_classes.get(gpu_class.metadata.name)
        if found is None or not deviceclass.is_ours(found):
            continue
        standing[gpu_class.metadata.name] = gpu_class
        if not name:
            continue
        if conflicts.sentence(gpu_class, rivals[name], mapped.get(name, ())):
            continue
        asked[name] = gpu_class
        if _mapped(found) != name and not may_be_plugins(name):
            rewritten[name] = gpu_class
    return Names(standing, asked, rewritten)


def fitting(names: Names, most: int) -> Names:
    """Return what of the names can be written with `most` characters, oldest classes first."""
    ordered = sorted(
        names.classes.items(), key=lambda each: (each[1].metadata.creation_timestamp or "", each[0])
    )
    by_class = {each.metadata.name: name for name, each in names.asked.items()}
    kept, asked, left = {}, {}, most
    for class_name, gpu_class in ordered:
        name = by_class.get(class_name)
        left -= written(class_name) + (written(name) if name else 0)
        if left < 0:
            break
        kept[class_name] = gpu_class
        if name:
            asked[name] = gpu_class
    return Names(kept, asked, {name: asked[name] for name in names.rewritten if name in asked})


def written(name: str) -> int:
    """Characters that a name takes in a list of names, as CEL in JSON has it."""
    return len(name) + len(r"\"\", ")


def _by_name(found: Iterable[T], name_of: Callable[[T], str]) -> dict[str, list[T]]:
    grouped: dict[str, list[T]] = {}
    for each in found:
        grouped.setdefault(name_of(each), []).append(each)
    return grouped


def _mapped(found: DeviceClass) -> str:
    return (found.spec.extended_resource_name if found.spec else None) or ""
