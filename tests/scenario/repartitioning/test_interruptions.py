# SPDX-License-Identifier: Apache-2.0
"""A change that is interrupted: the process is killed, the host reboots, the driver is away."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.scenario.repartitioning.conftest import CONFIG, LABELLER, PLUGIN, STATE, World
from tests.scenario.repartitioning.standins import Pod

from gpudeck import settings
from gpudeck.api.resources import EVENT

CARD = "GPU-00000000-0000-0000-0000-{:012d}"
FULL = [Counter({"1g.2gb": 4})] * 2


class Life:
    """One life of the real process, which ends by SIGKILL, its children too."""

    def __init__(self, world: World, *, listens: bool = False) -> None:
        self._world = world
        self._listens = listens
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Life:
        given = self._world.settings()
        words = []
        for option in settings.describe(type(given)):
            value = getattr(given, option.name)
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            words += [option.flag, text]
        code = "from gpudeck.cli import main; main.main()"
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, "mig-manager", *words, start_new_session=True,
            stderr=asyncio.subprocess.PIPE if self._listens else None,
        )  # fmt: skip
        return self

    async def changes(self, count: int) -> None:
        """Wait until so many changes of cards have begun."""
        assert self._process is not None
        assert self._process.stderr is not None
        while count:
            line = await self._process.stderr.readline()
            assert line, "it ended by itself"
            count -= b"Changing card" in line

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._process.returncode is None, "it ended by itself"
        for pid in (self._process.pid, *_children(self._process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await self._process.wait()


def _children(pid: int) -> list[int]:
    try:
        found = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # It has ended.
        return []
    return [*found, *(each for child in found for each in _children(child))]


@pytest.mark.parametrize("killed_at", [1, 2, 3, 4])
async def test_a_kill_after_each_write_to_the_node_is_gone_on_from(
    world: World, killed_at: int
) -> None:
    """Each life ends at its n-th write to the Node; the last one may go on."""
    world.label(**{CONFIG: "all-1g.2gb", "nvidia.com/gpu.deploy.dcgm": "true"})
    world.kubelet.pods["team/worker"] = Pod([CARD.format(0)])

    def writes() -> int:
        return sum(each.path == "/api/v1/nodes/node-0" for each in world.api.writes)

    def done() -> bool:
        return world.labels.get(STATE) == "success"

    for _ in range(6):
        before = writes()
        async with Life(world):
            await world.until(lambda: done() or writes() >= before + killed_at)  # noqa: B023
        if done():
            break
    async with Life(world):
        await world.becomes("success")
    assert await world.cards() == FULL
    assert world.cluster.evicted == ["team/worker"]
    assert world.labels["nvidia.com/gpu.deploy.dcgm"] == "true"
    assert {PLUGIN, LABELLER}.isdisjoint(world.labels)


async def test_a_kill_while_cards_are_changed_is_gone_on_from(world: World) -> None:
    """The library process of the first life hangs in a card until both are killed."""
    world.label(**{CONFIG: "all-1g.2gb"})
    world.cluster.stuck.add("device-plugin")
    async with Life(world):
        await world.until(lambda: world.condition.get("reason") == "Pausing")
        world.bench.hang(1)
        world.cluster.stuck.clear()
        world.kubelet.pods.pop("d8-nvidia-gpu/device-plugin")
        await world.until(lambda: '"Changing"' in world.notes["gpu.deckhouse.io/mig-change"])
    world.bench.unhang(1)
    async with Life(world):
        await world.becomes("success")
    assert await world.cards() == FULL


@pytest.mark.parametrize("change", [1, 2, 5, 9])
async def test_a_kill_at_a_change_of_a_card_is_gone_on_from(world: World, change: int) -> None:
    """Of ten changes: for each card its mode and four partitions."""
    world.label(**{CONFIG: "all-1g.2gb"})
    world.options["log_level"] = "info"
    async with Life(world, listens=True) as life:
        await life.changes(change)
    assert world.labels[STATE] == "pending"
    async with Life(world):
        await world.becomes("success")
    assert await world.cards() == FULL
    assert {PLUGIN, LABELLER}.isdisjoint(world.labels)


async def test_a_restart_says_nothing_that_was_said_before(world: World) -> None:
    world.label(**{CONFIG: "all-9g.9gb"})
    await world.start()
    await world.until(lambda: world.condition.get("reason") == "NoSuchMigConfig")
    await world.until(lambda: world.events() == ["NoSuchMigConfig"])
    await world.becomes("failed")
    await world.end()
    before = world.condition

    def looks_at_node() -> int:
        seen = [each.path for each in world.api.seen if each.method == "GET"]
        return seen.count("/api/v1/nodes/node-0")

    first = looks_at_node()
    await world.start()
    # The first step has the cards read, the second one makes something of it.
    await world.until(lambda: looks_at_node() >= first + 2)
    assert world.condition == before
    world.label(**{CONFIG: "all-enabled"})
    await world.becomes("success")
    told = [each for each in world.api.objects(EVENT).values() if "NoSuch" in each["reason"]]
    assert [each["count"] for each in told] == [1]


async def test_the_layout_is_made_again_after_a_reboot(world: World) -> None:
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.start()
    await world.becomes("success")
    await world.end()
    for card in (0, 1):
        world.bench.lose_partitions(card)
    world.boot("boot-2")
    await world.start()
    await world.until(lambda: "boot-2" in world.notes["gpu.deckhouse.io/mig-change"])
    await world.becomes("success")
    assert await world.cards() == FULL


def reset_fails(world: World) -> None:
    for card in (0, 1):
        world.bench.fail_reset(card)


async def test_a_reboot_that_nobody_allowed_is_asked_for_in_words(world: World) -> None:
    reset_fails(world)
    await world.start()
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.becomes("failed")
    await world.until(lambda: world.condition.get("reason") == "RebootRequired")
    assert "migManager.reboot.enabled" in world.condition["message"]
    await world.end()
    # Somebody reboots it, and the cards come up in their pending mode.
    mend(world)
    world.boot("boot-2")
    await world.start()
    await world.becomes("success")
    assert await world.cards() == FULL


def mend(world: World) -> None:
    """What a reboot does to cards whose mode waits for it."""
    for card in (0, 1):
        world.bench.mend_reset(card)
        world.bench.start_anew(card)


async def test_a_reboot_waits_for_approval_and_the_change_goes_on_after_it(world: World) -> None:
    reset_fails(world)
    await world.start(reboot=True, reboot_approval=True)
    world.label(**{CONFIG: "all-1g.2gb"})
    required, approved = (
        f"update.node.deckhouse.io/disruption-{each}" for each in ("required", "approved")
    )
    await world.until(lambda: required in world.notes)
    assert world.labels[STATE] == "rebooting"
    assert world.taints
    await world.until(lambda: world.condition.get("reason") == "RebootNotApproved")
    await world.end()
    # It would ask the host's systemctl now; the host reboots before.
    world.annotate(**{required: None, approved: ""})
    mend(world)
    world.boot("boot-2")
    await world.start()
    await world.becomes("success")
    assert {required, approved}.isdisjoint(world.notes)
    assert await world.cards() == FULL


async def test_a_host_that_cannot_be_told_to_reboot_fails_the_change(world: World) -> None:
    reset_fails(world)
    await world.start(reboot=True)
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.becomes("failed")
    await world.until(lambda: world.condition.get("reason") == "RebootUnsupported")


async def test_a_reboot_that_does_not_help_is_not_made_again(world: World) -> None:
    reset_fails(world)
    systemctl = world.root / "usr/bin/systemctl"
    systemctl.parent.mkdir(parents=True)
    systemctl.touch(mode=0o755)
    await world.start(reboot=True, reboot_approval=True)
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.until(lambda: world.labels.get(STATE) == "rebooting")
    await world.end()
    world.boot("boot-2")
    await world.start()
    await world.becomes("failed")
    await world.until(lambda: world.condition.get("reason") == "RebootDidNotHelp")


async def test_a_driver_that_is_away_is_waited_for_without_disturbing_anybody(
    world: World,
) -> None:
    world.bench.take_driver_away()
    await world.start()
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.until(lambda: world.condition.get("status") == "False")
    assert world.labels[STATE] == "pending"
    assert world.is_in_service()


async def test_an_api_server_that_is_away_for_a_while_delays_the_change(world: World) -> None:
    world.api.fail(6, 500, method="PATCH", path="/api/v1/nodes/node-0")
    await world.start()
    world.label(**{CONFIG: "all-enabled"})
    await world.becomes("success")
