# SPDX-License-Identifier: Apache-2.0
"""A node is attended from its first Ready adapter until some time after the last."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.support import gpus

from gpudeck.api.core import Pod
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.controller import keeping
from gpudeck.controller.attendance import Attendance
from gpudeck.kube.watching import Change

pytestmark = pytest.mark.asyncio

CARD = msgspec.convert(gpus.gpu(), PhysicalGPU)


def pod(name: str = "a", *, ready: str = "True", node: str = "node-0") -> Pod | None:
    raw = gpus.adapter_pod(node, ready=ready, name=name)
    return keeping.adapter_pod(msgspec.convert(raw, Pod))


class Watched(Attendance):
    def __init__(self, grace_seconds: float = 3600.0) -> None:
        self.news: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        super().__init__(grace_seconds, lambda *news: self.news.put_nowait(news))

    def saw(self, name: str, old: Pod | None, new: Pod | None) -> None:
        self.pod_changed(Change(name, old, new))


async def test_a_node_is_attended_from_its_first_ready_pod_on() -> None:
    watched = Watched()
    assert not watched.covers(CARD)
    watched.saw("a", None, pod())
    watched.saw("b", None, pod("b"))
    assert watched.covers(CARD)
    assert watched.news.get_nowait() == ("node-0", True)
    assert watched.news.empty()


async def test_a_pod_that_is_not_ready_or_has_no_node_attends_nothing() -> None:
    assert pod(ready="False") is None
    assert pod(node="") is None


async def test_of_two_pods_of_an_update_one_is_enough() -> None:
    watched = Watched(0.0)
    watched.saw("a", None, pod("a"))
    watched.saw("b", None, pod("b"))
    watched.saw("a", pod("a"), None)
    assert watched.covers(CARD)


async def test_a_node_whose_adapter_is_gone_counts_until_the_time_is_over() -> None:
    watched = Watched(0.0)
    watched.saw("a", None, pod())
    assert await watched.news.get() == ("node-0", True)
    watched.saw("a", pod(), None)
    assert watched.covers(CARD)
    assert await watched.news.get() == ("node-0", False)
    assert not watched.covers(CARD)


async def test_an_adapter_that_returns_in_time_is_no_news() -> None:
    watched = Watched()
    watched.saw("a", None, pod())
    watched.saw("a", pod(), None)
    watched.saw("b", None, pod("b"))
    assert watched.covers(CARD)
    watched.saw("b", pod("b"), None)
    assert watched.news.qsize() == 1


async def test_a_node_with_a_long_name_is_found_by_the_label_of_its_cards() -> None:
    node = "n" * 100
    raw = gpus.gpu(node=node)
    watched = Watched()
    watched.saw("a", None, pod(node=node))
    label, _ = watched.news.get_nowait()
    raw["metadata"]["labels"]["gpu.deckhouse.io/node"] = label
    assert watched.covers(msgspec.convert(raw, PhysicalGPU))


async def test_cards_are_known_by_their_node_until_they_go() -> None:
    watched = Watched()
    watched.card_changed(Change("x", None, CARD))
    watched.card_changed(Change("y", None, CARD))
    watched.card_changed(Change("x", CARD, CARD))
    assert list(watched.cards("node-0")) == ["x", "y"]
    watched.card_changed(Change("x", CARD, None))
    watched.card_changed(Change("y", CARD, None))
    assert list(watched.cards("node-0")) == []
