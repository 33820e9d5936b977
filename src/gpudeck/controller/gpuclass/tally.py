# SPDX-License-Identifier: Apache-2.0
"""How many cards there are of each kind, counted change by change.

Pure, in memory. Cards with equal traits count as one kind, so a class looks at a
dozen kinds and not at 40,000 cards, and a change of one card costs two additions.
"""

from __future__ import annotations

import collections
import dataclasses

from gpudeck.api import selectors
from gpudeck.api.selectors import Traits
from gpudeck.api.v1alpha1.gpuclass import GPUClassSpec
from gpudeck.api.v1alpha1.physicalgpu import OccupancyState, Phase, PhysicalGPU
from gpudeck.controller.physicalgpu import phase


@dataclasses.dataclass(slots=True)
class Counts:
    """Cards of one kind or of one class."""

    gpus: int = 0
    devices: int = 0
    """Cards that are offered as devices."""
    free: int = 0
    allocated: int = 0

    def add(self, other: Counts, sign: int = 1) -> None:
        """Add the other counts, or take them off with sign -1."""
        self.gpus += sign * other.gpus
        self.devices += sign * other.devices
        self.free += sign * other.free
        self.allocated += sign * other.allocated


class Tally:
    """Counts by kind and by phase."""

    def __init__(self) -> None:
        self.phases: collections.Counter[str] = collections.Counter()
        self._kinds: dict[Traits, Counts] = {}

    def change(self, old: PhysicalGPU | None, new: PhysicalGPU | None) -> bool:
        """Take over a change of one card; say whether any count changed."""
        before = (selectors.traits_of_gpu(old), counts_of(old)) if old is not None else None
        after = (selectors.traits_of_gpu(new), counts_of(new)) if new is not None else None
        self.phases[_phase(old)] -= 1
        self.phases[_phase(new)] += 1
        if before == after:
            return False
        if before is not None:
            self._add(*before, sign=-1)
        if after is not None:
            self._add(*after)
        return True

    def of(self, spec: GPUClassSpec) -> Counts:
        """Return the counts of the cards that a class selects. Raises InvalidError.

        Of a class of parts only `gpus` says anything: the cards of which parts could be had.
        """
        total = Counts()
        for traits, counts in self._kinds.items():
            if not selectors.card_mismatches(spec, traits):
                total.add(counts)
        return total

    def _add(self, traits: Traits, counts: Counts, sign: int = 1) -> None:
        kind = self._kinds.setdefault(traits, Counts())
        kind.add(counts, sign)
        if kind == Counts():
            del self._kinds[traits]


def counts_of(gpu: PhysicalGPU) -> Counts:
    """Return what one card counts as; a lost card counts as nothing."""
    if gpu.status is None or phase.is_lost(gpu):
        return Counts()
    published = phase.is_published(gpu)
    occupancy = gpu.status.occupancy
    held = occupancy is not None and occupancy.state not in (None, OccupancyState.FREE)
    return Counts(
        gpus=1,
        devices=int(published),
        free=int(published and not held and gpu.status.phase is Phase.READY),
        allocated=int(held),
    )


def _phase(gpu: PhysicalGPU | None) -> str:
    return str(gpu.status.phase or "") if gpu is not None and gpu.status is not None else ""
