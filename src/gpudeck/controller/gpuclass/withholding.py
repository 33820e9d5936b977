# SPDX-License-Identifier: Apache-2.0
"""The cards whose parts are not offered, because the API server would not guard them.

Pure, in memory, like `tally`. The DRA plugin of a card's node finds that out and says so in
the condition Published; a class of parts then tells it to those who wait for its devices.
"""

from __future__ import annotations

import collections

from gpudeck.api import conditions, selectors
from gpudeck.api.selectors import Traits
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.api.v1alpha1.gpuclass import GPUClassSpec
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.controller.physicalgpu import phase


class Withheld:
    """Counts by kind of card."""

    def __init__(self) -> None:
        self._kinds: collections.Counter[Traits] = collections.Counter()

    def change(self, old: PhysicalGPU | None, new: PhysicalGPU | None) -> bool:
        """Take over a change of one card; say whether any count changed."""
        before, after = _traits(old), _traits(new)
        if before == after:
            return False
        if before is not None:
            self._kinds[before] -= 1
        if after is not None:
            self._kinds[after] += 1
        self._kinds = +self._kinds
        return True

    def sentence(self, spec: GPUClassSpec) -> str:
        """Return what a class has to say of it; empty if nothing. Raises InvalidError."""
        if set(selectors.kinds(spec)) <= {gpuclass.WHOLE}:
            return ""
        count = sum(
            cards
            for traits, cards in self._kinds.items()
            if not selectors.card_mismatches(spec, traits)
        )
        if not count:
            return ""
        cards = "1 of the cards is" if count == 1 else f"{count} of the cards are"
        return f"{cards} not offered in parts, because {conditions.PARTS_UNGUARDED}"


def _traits(gpu: PhysicalGPU | None) -> Traits | None:
    if gpu is None or gpu.status is None or phase.is_lost(gpu):
        return None
    published = conditions.find(gpu.status.conditions, conditions.PUBLISHED)
    if published is None or published.reason != conditions.PARTS_WITHHELD:
        return None
    return selectors.traits_of_gpu(gpu)
