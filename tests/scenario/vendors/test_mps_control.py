# SPDX-License-Identifier: Apache-2.0
"""`gpudeck mps-control` with the stand-in daemon: wishes, deaths, and its own restarts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import expect
from tests.support.mps import Keeper

from gpudeck.vendors.nvidia.mps import places

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="changes roots and mounts")

CARD, OTHER = "0000:1b:00.0", "0000:43:00.0"
UUID, ANOTHER = "GPU-1111", "GPU-2222"


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    made = Keeper.of_empty_tree(tmp_path / "root")
    made.start()
    yield made
    made.kill()


def environment(pid: int) -> dict[str, str]:
    words = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(word.partition("=")[::2] for word in words if word)


async def test_a_daemon_lives_from_the_first_share_to_the_last(keeper: Keeper) -> None:
    card = keeper.card(CARD)
    assert card.add_share("one", UUID)
    pid = await keeper.ready(CARD)
    assert not card.add_share("one", UUID)
    card.add_share("two", UUID)
    card.remove_share("one")
    assert environment(pid)["CUDA_VISIBLE_DEVICES"] == UUID
    assert environment(pid)["CUDA_MPS_PIPE_DIRECTORY"] == "/run/gpudeck/mps/0000-1b-00-0/pipe"
    assert keeper.daemon(CARD) == pid
    card.remove_share("two")
    await keeper.gone(CARD)


async def test_each_card_has_a_daemon_of_its_own(keeper: Keeper) -> None:
    keeper.card(CARD).add_share("one", UUID)
    keeper.card(OTHER).add_share("one", ANOTHER)
    first, second = await keeper.ready(CARD), await keeper.ready(OTHER)
    assert first != second
    keeper.card(CARD).remove_share("one")
    await keeper.gone(CARD)
    assert keeper.daemon(OTHER) == second


async def test_a_daemon_that_dies_is_started_again(keeper: Keeper) -> None:
    keeper.card(CARD).add_share("one", UUID)
    first = await keeper.ready(CARD)
    os.kill(first, signal.SIGKILL)

    async def is_another() -> bool:
        return keeper.daemon(CARD) not in (None, first)

    await expect.eventually(is_another, True)
    await keeper.ready(CARD)


async def test_daemons_end_with_their_keeper_and_the_next_one_starts_them_again(
    keeper: Keeper,
) -> None:
    keeper.card(CARD).add_share("one", UUID)
    first = await keeper.ready(CARD)
    keeper.kill()
    assert not places.is_served(keeper.root)

    async def daemon() -> int | None:
        return keeper.daemon(CARD)

    await expect.eventually(daemon, None)
    keeper.start()

    async def is_another() -> bool:
        return keeper.daemon(CARD) not in (None, first)

    await expect.eventually(is_another, True)
    await keeper.ready(CARD)
    assert places.is_served(keeper.root)


async def test_a_keeper_that_is_told_to_end_leaves_neither_daemon_nor_state(
    keeper: Keeper,
) -> None:
    keeper.card(CARD).add_share("one", UUID)
    await keeper.ready(CARD)
    keeper.kill(signal.SIGTERM)
    await keeper.gone(CARD)
    assert keeper.card(CARD).shares() == ("one",)


async def test_what_was_given_back_meanwhile_is_forgotten_at_the_start(keeper: Keeper) -> None:
    keeper.card(CARD).add_share("one", UUID)
    await keeper.ready(CARD)
    keeper.kill()
    keeper.card(CARD).remove_share("one")
    assert keeper.card(CARD).state() == places.State(ready=True)
    keeper.start()
    await keeper.gone(CARD)


async def test_a_share_that_comes_while_the_daemon_ends_waits_for_the_next_one(
    keeper: Keeper,
) -> None:
    card = keeper.card(CARD)
    card.add_share("one", UUID)
    first = await keeper.ready(CARD)
    os.kill(first, signal.SIGSTOP)
    card.remove_share("one")

    async def is_ready() -> bool | None:
        state = card.state()
        return state.ready if state is not None else None

    await expect.eventually(is_ready, False)
    card.add_share("two", UUID)
    assert await is_ready() is False
    os.kill(first, signal.SIGCONT)
    assert await keeper.ready(CARD) != first


async def test_another_card_in_the_place_gets_another_daemon(keeper: Keeper) -> None:
    card = keeper.card(CARD)
    card.add_share("one", UUID)
    first = await keeper.ready(CARD)
    card.remove_share("one")
    card.add_share("two", ANOTHER)

    async def served() -> str | None:
        pid = keeper.daemon(CARD)
        return None if pid in (None, first) else environment(pid or 0)["CUDA_VISIBLE_DEVICES"]

    await expect.eventually(served, ANOTHER)


async def test_a_node_without_the_program_says_so(keeper: Keeper) -> None:
    (keeper.tree / "usr/bin/nvidia-cuda-mps-control").unlink()
    keeper.card(CARD).add_share("one", UUID)

    async def message() -> str:
        state = keeper.card(CARD).state()
        return state.message if state is not None else ""

    await expect.eventually(message, "the node has no nvidia-cuda-mps-control.")
