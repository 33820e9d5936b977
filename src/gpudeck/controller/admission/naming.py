# SPDX-License-Identifier: Apache-2.0
"""Which extended resource names stand for which class, and who turns them into claims. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from gpudeck.api.resource import DeviceClass
from gpudeck.api.v1alpha1.gpuclass import GPUClass, asked_name
from gpudeck.controller.gpuclass import conflicts, deviceclass


@dataclasses.dataclass(frozen=True)
class Names:
    """The classes by name, and those that pods ask for, by extended resource name."""

    classes: Mapping[str, GPUClass]
    """Those that claims get by their name: a DeviceClass of somebody else is not ours to judge."""
    asked: Mapping[str, GPUClass]
    rewritten: Mapping[str, GPUClass]
    """Those of `asked` that no scheduler serves: their pods get a claim from the webhook."""


def names_of(classes: Mapping[str, GPUClass], device_classes: Mapping[str, DeviceClass]) -> Names:
    """Return the names of the classes whose DeviceClass stands.

    That the scheduler serves a name is seen by the DeviceClass that carries it: an API server
    without extended resources of DRA (before 1.36, by default) drops the field, and a class
    of shares with amounts of its own has it left out.
    """
    standing, asked, rewritten = {}, {}, {}
    for gpu_class in classes.values():
        name = asked_name(gpu_class)
        found = device_classes.get(gpu_class.metadata.name)
        if found is None or not deviceclass.is_ours(found):
            continue
        standing[gpu_class.metadata.name] = gpu_class
        if not name:
            continue
        if conflicts.sentence(gpu_class, classes.values(), device_classes.values()):
            continue
        asked[name] = gpu_class
        served = found.spec.extended_resource_name if found.spec else None
        if served != name:
            rewritten[name] = gpu_class
    return Names(standing, asked, rewritten)
