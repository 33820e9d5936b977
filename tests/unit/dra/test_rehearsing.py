# SPDX-License-Identifier: Apache-2.0
"""Which slices are tried before they are written, and what a server lacks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.dra.test_offering import ANY_PART, SHARE, SICK, card, hopper, offer
from tests.unit.dra.test_slices import OWNER

from gpudeck.api import resource
from gpudeck.dra import rehearsing, slices
from gpudeck.dra.rehearsing import Kept


def planned(*existing: resource.ResourceSlice, cards: Any, classes: Any = ()) -> slices.Plan:
    wanted = offer(cards, *classes)
    return slices.plan(list(existing), wanted.devices, wanted.counters, owner=OWNER)


def tried(made: slices.Plan, *existing: resource.ResourceSlice) -> list[str]:
    by_name = {each.metadata.name: each for each in existing}
    return [each.metadata.name[:5] for each in rehearsing.doubtful(made, by_name)]


@pytest.mark.parametrize(
    ("dropped", "kept"),
    [
        ([], Kept()),
        (["spec.devices[a].attributes", "spec.sharedCountersX"], Kept()),
        (["spec.devices[a].taints"], Kept(taints=False)),
        (["spec.sharedCounters"], Kept(counters=False)),
        (["spec.devices[a].consumesCounters"], Kept(counters=False)),
        (["spec.devices[a.b].allowMultipleAllocations"], Kept(shares=False)),
    ],
)
def test_what_is_dropped_is_not_counted_on(dropped: list[str], kept: Kept) -> None:
    assert Kept().without(dropped) == kept


def test_whole_healthy_cards_need_no_trial() -> None:
    assert tried(planned(cards=[card(1), card(2)])) == []


def test_each_guard_is_tried_once() -> None:
    made = planned(cards=[hopper(bus) for bus in range(1, 17)], classes=(ANY_PART, SHARE))
    assert len(made.apply) > 4
    # Partitions come first; the last slices have the shares, and the counters.
    first, *others = tried(made)
    assert first == "00000"
    assert len(others) == 2


def test_what_an_object_has_already_is_not_tried_again() -> None:
    made = planned(cards=[hopper()], classes=(ANY_PART, SHARE))
    assert tried(made, *made.apply) == []
    sick = planned(*made.apply, cards=[hopper(health=SICK)], classes=(ANY_PART, SHARE))
    assert tried(sick, *made.apply) == ["00000"]


def test_a_slice_that_is_to_be_made_anew_cannot_be_tried() -> None:
    made = planned(cards=[hopper()], classes=(ANY_PART,))
    strange = msgspec.structs.replace(
        made.apply[0], spec=msgspec.structs.replace(made.apply[0].spec, node_name="another")
    )
    again = planned(strange, cards=[hopper()], classes=(ANY_PART,))
    assert [each.metadata.name for each in again.delete] == [strange.metadata.name]
    assert strange.metadata.name[:5] not in tried(again, strange)
