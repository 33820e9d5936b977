# SPDX-License-Identifier: Apache-2.0
"""Which pods the kubelet says that there are, over a real socket."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.scenario.repartitioning import standins

from gpudeck.errors import UnavailableError
from gpudeck.kubelet import checkpoints, listing


@pytest.fixture
def away() -> Iterator[standins.Kubelet]:
    with tempfile.TemporaryDirectory(prefix="pods-") as folder:
        yield standins.Kubelet(Path(folder) / "kubelet.sock")


@pytest.fixture
async def kubelet(away: standins.Kubelet) -> AsyncIterator[standins.Kubelet]:
    await away.start()
    yield away
    await away.stop()


async def test_pods_come_by_name_with_containers_and_devices(kubelet: standins.Kubelet) -> None:
    kubelet.pods = {
        "team/b": standins.Pod(["GPU-1", "GPU-2::3"], container="trains"),
        "sys/a": standins.Pod(container="serves"),
    }
    wanted = (
        listing.Pod("sys", "a", frozenset({"serves"}), frozenset()),
        listing.Pod("team", "b", frozenset({"trains"}), frozenset({"GPU-1", "GPU-2::3"})),
    )
    assert await listing.pods(kubelet.place) == wanted
    kubelet.keep()
    assert await listing.pods(kubelet.place) == wanted


async def test_what_an_init_container_has_is_its_pods_until_that_ends(
    kubelet: standins.Kubelet,
) -> None:
    kubelet.pods = {
        "team/prepares": standins.Pod(initial=["GPU-1"]),
        "team/has-both": standins.Pod(["GPU-2"], initial=["GPU-2", "GPU-3"]),
        "team/has-ended": standins.Pod(initial=["GPU-4"]),
    }
    kubelet.keep()
    del kubelet.pods["team/has-ended"]
    assert {each.name: each.devices for each in await listing.pods(kubelet.place)} == {
        "prepares": {"GPU-1"},
        "has-both": {"GPU-2", "GPU-3"},
    }


async def test_what_another_pod_has_by_now_is_of_nobody_else(kubelet: standins.Kubelet) -> None:
    """The file has a device of a pod whose name there is again."""
    kubelet.pods = {"team/first": standins.Pod(initial=["GPU-1"])}
    kubelet.keep()
    kubelet.pods = {"team/first": standins.Pod(), "team/next": standins.Pod(["GPU-1"])}
    found = {each.name: each.devices for each in await listing.pods(kubelet.place)}
    assert found == {"first": frozenset(), "next": {"GPU-1"}}


async def test_odd_folders_and_files_of_the_kubelet_name_nobody(kubelet: standins.Kubelet) -> None:
    kubelet.pods = {"team/prepares": standins.Pod(initial=["GPU-1"])}
    kubelet.keep()
    for each in ("lost+found", "team_x", "_", "a_b_c_d"):
        (kubelet.logs / each).mkdir()
    (found,) = await listing.pods(kubelet.place)
    assert found.devices == {"GPU-1"}
    (kubelet.plugins / checkpoints.FILE).write_text("{")
    (found,) = await listing.pods(kubelet.place)
    assert found.devices == frozenset()


async def test_a_kubelet_that_is_away_is_said_to_be(away: standins.Kubelet) -> None:
    with pytest.raises(UnavailableError) as caught:
        await listing.pods(away.place)
    assert caught.value.reason == "PodResourcesUnavailable"
