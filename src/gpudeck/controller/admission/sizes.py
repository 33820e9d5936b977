# SPDX-License-Identifier: Apache-2.0
"""Warnings about a GPUClass that misses the cards of the cluster by a little. Pure.

A card that is sold with 80 GB has 79.6 GiB, a partition 1g.10gb about 9.6 GiB, so a
minimum of 80Gi or 10Gi selects nothing where its author meant these. Such a class is
valid, and cards that fit may come: so it is a warning at admission and no refusal.
"""

from __future__ import annotations

import msgspec

from gpudeck.api import quantities, selectors
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.api.v1alpha1.gpuclass import GPUClassSpec, SizeRange
from gpudeck.controller.admission.fleet import Fleet
from gpudeck.errors import InvalidError

NEAR = 0.1
"""How far below a minimum a size may lie, as a part of it, to be taken for what was meant."""


def warnings(spec: GPUClassSpec, fleet: Fleet) -> list[str]:
    """Return a sentence for each minimum just above what is there, and each unknown profile."""
    try:
        partitioned = gpuclass.PARTITION in selectors.kinds(spec)
        found = _card_warnings(spec, fleet)
        if partitioned and spec.partition is not None:
            sizes = {
                profile.name: profile.memory
                for model in fleet.models(spec)
                for profile in model.profiles
            }
            found += _near("spec.partition.memory.min", spec.partition.memory, sizes)
            found += _unknown(spec.partition.profiles or [], fleet.profiles())
    except InvalidError:  # The status of the class says what of it cannot be read.
        return []
    return found


def _card_warnings(spec: GPUClassSpec, fleet: Fleet) -> list[str]:
    required = spec.requirements
    if required is None or required.memory is None:
        return []
    without = msgspec.structs.replace(required, memory=None)
    loose = msgspec.structs.replace(spec, requirements=without)
    sizes = {
        model.traits.product_name or "a card": model.traits.memory_bytes or 0
        for model in fleet.models(loose)
    }
    return _near("spec.requirements.memory.min", required.memory, sizes)


def _near(field: str, bounds: SizeRange | None, sizes: dict[str, int]) -> list[str]:
    if bounds is None or bounds.min is None:
        return []
    least = quantities.parse(bounds.min, field)
    return [
        f"{field}: {bounds.min} is more than {name} has, {quantities.short(size)}; "
        f"{quantities.render(size // quantities.MEBIBYTE * quantities.MEBIBYTE)} selects it"
        for name, size in sorted(sizes.items())
        if least * (1 - NEAR) <= size < least
    ]


def _unknown(wanted: list[str], known: list[str]) -> list[str]:
    if not known:
        return []
    return [
        f"spec.partition.profiles: no card has the profile {each}; there are {', '.join(known)}"
        for each in wanted
        if each not in known
    ]
