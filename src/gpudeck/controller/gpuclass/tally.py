# SPDX-License-Identifier: Apache-2.0
"""How many devices the cards of each kind give, counted change by change.

Pure, in memory. Cards with equal traits that can be cut up in the same ways are one kind,
and of a kind it is counted how many cards are in which state. A class looks at a dozen
kinds with a few states each, not at 40,000 cards, and a change of one card costs a few
additions.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Hashable
from typing import Any

import msgspec

from gpudeck.api import names, quantities, selectors
from gpudeck.api.selectors import Traits
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.api.v1alpha1.gpuclass import GPUClassSpec
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.controller import models
from gpudeck.controller.gpuclass import standing
from gpudeck.devices import cutting


@dataclasses.dataclass(slots=True)
class Counts:
    """What a class has."""

    gpus: int = 0
    devices: int = 0
    """Devices of the class that its cards give if nobody holds any of them."""
    free: int = 0
    """Devices of the class that could be had now; of classes with shares it says nothing."""
    allocated: int = 0
    """Devices of the class that claims hold."""
    held_otherwise: int = 0
    """Cards of which claims hold something that is not of the class."""
    share_mib: int = 0
    """Memory that claims for shares could get now."""

    def add(self, other: Counts) -> None:
        """Add the other counts."""
        for field in dataclasses.fields(self):
            total = getattr(self, field.name) + getattr(other, field.name)
            setattr(self, field.name, total)


class _Kind(msgspec.Struct, frozen=True):
    traits: Traits
    model: cutting.Model | None


_States = collections.Counter[standing.Room]


class _Sums:
    """The cards of one kind."""

    def __init__(self) -> None:
        self.gpus = 0
        self.offered: _States = collections.Counter()
        self.left: _States = collections.Counter()
        self.held: collections.Counter[str] = collections.Counter()
        """Devices by the name of their kind or, for partitions, of their profile."""
        self.holders: collections.Counter[frozenset[str]] = collections.Counter()
        """Cards by what is held of them."""
        self.share_mib = self.mps_share_mib = 0

    def add(self, card: standing.Standing, sign: int) -> None:
        self.gpus += sign
        self.share_mib += sign * card.share_mib
        self.mps_share_mib += sign * card.mps_share_mib
        _count(self.offered, card.offered, sign)
        _count(self.left, card.left, sign)
        held = _named(card.held)
        for name in held:
            _count(self.held, name, sign)
        if held:
            _count(self.holders, frozenset(held), sign)


class Tally:
    """Counts by kind and by phase."""

    def __init__(self) -> None:
        self.phases: collections.Counter[str] = collections.Counter()
        self._kinds: dict[_Kind, _Sums] = {}

    def change(
        self,
        old: PhysicalGPU | None,
        new: PhysicalGPU | None,
        *,
        was_attended: bool,
        is_attended: bool,
    ) -> bool:
        """Take over a change of one card; say whether any count changed.

        `was_attended` is what `old` was counted with.
        """
        before, after = _entry(old, was_attended), _entry(new, is_attended)
        self.phases[_phase(old)] -= 1
        self.phases[_phase(new)] += 1
        if before == after:
            return False
        if before is not None:
            self._add(*before, sign=-1)
        if after is not None:
            self._add(*after, sign=1)
        return True

    def profiles(self, vendor: str) -> set[str]:
        """Return the profiles of partitions that cards of a maker have."""
        return {
            profile.name
            for kind in self._kinds
            if kind.model is not None and kind.traits.vendor == vendor
            for profile in kind.model.profiles
        }

    def of(self, spec: GPUClassSpec) -> Counts:
        """Return the counts of a class. Raises InvalidError if it cannot be read."""
        total = Counts()
        for kind, sums in self._kinds.items():
            if not selectors.card_mismatches(spec, kind.traits):
                total.add(_counts(spec, kind.model, sums))
        return total

    def _add(self, kind: _Kind, card: standing.Standing, sign: int) -> None:
        sums = self._kinds.get(kind)
        if sums is None:
            sums = self._kinds[kind] = _Sums()
        sums.add(card, sign)
        if not sums.gpus:
            del self._kinds[kind]


_WHOLE, _SHARE, _MPS_SHARE = "whole", "share", "share-mps"


def _entry(gpu: PhysicalGPU | None, attended: bool) -> tuple[_Kind, standing.Standing] | None:
    card = standing.of(gpu, attended=attended) if gpu is not None else None
    if gpu is None or card is None:
        return None
    can = gpu.status.capabilities if gpu.status else None
    model = models.of(can.partition_support if can else None)
    return _Kind(selectors.traits_of_gpu(gpu), model), card


def _named(held: standing.Held) -> list[str]:
    return [
        *[_WHOLE] * held.whole,
        *[_SHARE] * held.shares,
        *[_MPS_SHARE] * held.mps_shares,
        *(profile for profile, _, _ in held.partitions),
    ]


def _counts(spec: GPUClassSpec, model: cutting.Model | None, sums: _Sums) -> Counts:
    """What cards of one kind give to a class."""
    kinds = selectors.kinds(spec)
    profiles = frozenset(
        each
        for each in (model.profiles if model else ())
        if selectors.takes_profile(spec, each.name, each.memory_mib * quantities.MEBIBYTE)
    )
    ids = frozenset(each.profile_id for each in profiles)
    mine = {names.plain_profile(each.name) for each in profiles}
    if gpuclass.WHOLE in kinds:
        mine.add(_WHOLE)
    if gpuclass.SHARE in kinds:
        mine.add(_share(spec))

    def given(state: standing.Room) -> int:
        parts = cutting.most(model, ids, state.parts) if model and state.parts and ids else 0
        whole = (
            (state.whole and _WHOLE in mine)
            or (state.sliced and _SHARE in mine)
            or (state.mps and _MPS_SHARE in mine)
        )
        return max(int(whole), parts)

    return Counts(
        gpus=sums.gpus,
        devices=sum(count * given(state) for state, count in sums.offered.items()),
        free=sum(count * given(state) for state, count in sums.left.items()),
        allocated=sum(count for name, count in sums.held.items() if name in mine),
        held_otherwise=sum(count for held, count in sums.holders.items() if not held <= mine),
        share_mib=sums.mps_share_mib if _MPS_SHARE in mine else sums.share_mib,
    )


def _share(spec: GPUClassSpec) -> str:
    strategy = (spec.share.strategy if spec.share else None) or gpuclass.TIME_SLICING
    return _SHARE if strategy == gpuclass.TIME_SLICING else _MPS_SHARE


def _count(states: collections.Counter[Any], state: Hashable, sign: int) -> None:
    states[state] += sign
    if not states[state]:
        del states[state]


def _phase(gpu: PhysicalGPU | None) -> str:
    return str(gpu.status.phase or "") if gpu is not None and gpu.status is not None else ""
