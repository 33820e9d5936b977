# SPDX-License-Identifier: Apache-2.0
"""Which pods the kubelet says that there are, over a real socket."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.scenario.repartitioning import standins

from gpudeck.errors import UnavailableError
from gpudeck.kubelet import listing


@pytest.fixture
def socket() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pods-") as folder:
        yield Path(folder) / "kubelet.sock"


async def test_pods_come_by_name_with_containers_and_devices(socket: Path) -> None:
    kubelet = standins.Kubelet(socket)
    await kubelet.start()
    try:
        kubelet.pods = {
            "team/b": standins.Pod(["GPU-1", "GPU-2::3"], container="trains"),
            "sys/a": standins.Pod(container="serves"),
        }
        assert await listing.pods(socket) == (
            listing.Pod("sys", "a", frozenset({"serves"}), frozenset()),
            listing.Pod("team", "b", frozenset({"trains"}), frozenset({"GPU-1", "GPU-2::3"})),
        )
    finally:
        await kubelet.stop()


async def test_a_kubelet_that_is_away_is_said_to_be(socket: Path) -> None:
    with pytest.raises(UnavailableError) as caught:
        await listing.pods(socket)
    assert caught.value.reason == "PodResourcesUnavailable"
