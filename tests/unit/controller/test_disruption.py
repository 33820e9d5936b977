# SPDX-License-Identifier: Apache-2.0
"""What counts as news about a card, and how soon the next may be told."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

import msgspec
import pytest
from tests.support import gpus
from tests.support.apiserver import ApiServer

from gpudeck.api import conditions
from gpudeck.api.resource import ResourceClaim
from gpudeck.api.resources import EVENT, PHYSICAL_GPU, RESOURCE_CLAIM
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.controller import disruption
from gpudeck.controller.physicalgpu import holdings
from gpudeck.kube.caching import Cache
from gpudeck.kube.recording import Recorder

CARD = "node-0-0000-1b-00-0"


def card(reason: str = "Tested", **states: str) -> PhysicalGPU:
    given = {conditions.DISCOVERED: "True", conditions.HARDWARE_HEALTHY: "True", **states}
    gpu = gpus.gpu(states=given)
    for each in gpu["status"]["conditions"]:
        each["reason"] = reason
    return msgspec.convert(gpu, PhysicalGPU)


def followed(*cards: PhysicalGPU | None) -> disruption.Verdict | None:
    verdict = None
    for each in cards:
        verdict = disruption.follow(verdict, each)
    return verdict


SICK: Mapping[str, str] = {conditions.HARDWARE_HEALTHY: "False"}
LOST: Mapping[str, str] = {conditions.DISCOVERED: "False", conditions.HARDWARE_HEALTHY: "Unknown"}
UNKNOWN: Mapping[str, str] = {conditions.HARDWARE_HEALTHY: "Unknown"}


def test_a_card_that_is_well_or_unknown_is_no_news() -> None:
    assert followed(card(), card(**UNKNOWN), card()) is None


@pytest.mark.parametrize("states", [SICK, LOST], ids=["sick", "lost"])
def test_a_card_that_is_sick_or_lost_is_news_until_it_is_well(states: Mapping[str, str]) -> None:
    verdict = followed(card(), card("X", **states))
    assert verdict is not None
    assert (verdict.is_sick, verdict.reason) == (True, "X")
    assert disruption.follow(verdict, card(**UNKNOWN)) is verdict
    assert disruption.follow(verdict, card("X", **states)) is verdict
    well = disruption.follow(verdict, card())
    assert well is not None
    assert not well.is_sick
    assert disruption.follow(well, card()) is well


def test_a_card_without_an_object_is_forgotten() -> None:
    assert followed(card(**SICK), None) is None


class Clock:
    def __init__(self) -> None:
        self.time = datetime.datetime.now(datetime.UTC)

    def __call__(self) -> datetime.datetime:
        return self.time


async def test_a_card_that_flaps_is_told_of_at_a_bounded_rate() -> None:
    async with ApiServer() as server, server.client() as client:
        clock = Clock()
        claims = Cache(client, RESOURCE_CLAIM, ResourceClaim)
        held = holdings.Holdings()
        claim = msgspec.convert(gpus.claim("c", gpus.result(), pods=("p",)), ResourceClaim)
        claims.objects["t/c"] = claim
        held.change(None, claim)
        recorder = Recorder(client, "gpu-controller")
        told = disruption.Disruption(
            client, recorder, claims, held, gpus=Cache(client, PHYSICAL_GPU, PhysicalGPU), now=clock
        )
        server.put(PHYSICAL_GPU, gpus.gpu())
        assert not told.follow(CARD, card())
        sick = card("Xid79", **SICK)
        sick = msgspec.structs.replace(sick, status=_since(sick, clock.time))
        assert told.follow(CARD, sick)
        assert await told.reconcile(CARD) is None
        assert told.follow(CARD, card())
        clock.time += datetime.timedelta(seconds=4)
        assert await told.reconcile(CARD) == disruption.REST_SECONDS - 4
        assert len(server.objects(EVENT)) == 1
        clock.time += datetime.timedelta(seconds=disruption.REST_SECONDS)
        assert await told.reconcile(CARD) is None
        assert len(server.objects(EVENT)) == 2
        assert not told.has_news(CARD)


def _since(gpu: PhysicalGPU, time: datetime.datetime) -> object:
    assert gpu.status is not None
    stamp = time.isoformat()
    found = [
        msgspec.structs.replace(each, last_transition_time=stamp)
        for each in gpu.status.conditions or ()
    ]
    return msgspec.structs.replace(gpu.status, conditions=found)
