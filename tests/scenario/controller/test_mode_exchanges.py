# SPDX-License-Identifier: Apache-2.0
"""Two nodes change their modes at random, again and again, under a controller that keeps dying.

Users' pods come back wherever they may, some of them are kept by budgets that open and close,
and now and then one is bound by a scheduler that has not heard of the taint. What must never be is
looked for at every change; in the end both nodes are as they were last wanted.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest
from tests.scenario.controller.machines import (
    CARD,
    DRA,
    PLUGIN,
    Machine,
    allow,
    protect,
)
from tests.scenario.controller.test_controller import controller
from tests.support.apiserver import ApiServer

from gpudeck.api import labels
from gpudeck.api.resources import POD, RESOURCE_CLAIM
from gpudeck.controller.draining import eviction
from gpudeck.controller.modes import reconciler

pytestmark = pytest.mark.asyncio

FLIPS = 20
SEEDS = range(20 if os.environ.get("GPUDECK_SOAK") else 1)
IDLE_SECONDS = 0.2


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "PAUSES", ((3600.0, 0.01),))
    monkeypatch.setattr(eviction, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(eviction, "LIMIT_SECONDS", 0.05)


class Users:
    """The users of one node: their pods, the budget of one of them, and what they must not see."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.server = machine, machine.server
        self.names = [f"{word}-{machine.name}" for word in ("kept", "free")]
        self.plain = f"plain-{machine.name}"
        self.wrong: list[str] = []
        self._before = machine.active
        self._is_due = False
        self._late = 0
        machine.run_pod(self.plain)
        allow(self.server, self.names[0])
        self.server.store.on_change(self._changed)

    def held(self) -> set[str]:
        """The modes by which pods or claims have cards of the node."""
        found = set()
        for pod in self.server.objects(POD).values():
            spec: dict[str, Any] = pod["spec"]
            is_here = spec.get("nodeName") == self.machine.name
            if is_here and spec.get("resourceClaims"):
                found.add(DRA)
            elif is_here and spec["containers"][0].get("resources", {}).get("limits"):
                found.add(PLUGIN)
        for claim in self.server.objects(RESOURCE_CLAIM).values():
            results = claim["status"]["allocation"]["devices"]["results"]
            if any(each["pool"] == self.machine.name for each in results):
                found.add(DRA)
        return found

    def late(self) -> None:
        """A pod is bound although the node takes no new ones."""
        mode = self.machine.active
        if mode is not None:
            self._late += 1
            self._run(f"late-{self._late}-{self.machine.name}", mode)

    def budget(self, *, is_open: bool) -> None:
        protect(self.server, self.names[0], allowed=int(is_open))

    def _run(self, name: str, mode: str) -> None:
        self.machine.run_pod(name, claim=mode == DRA, **({} if mode == DRA else CARD))

    def _changed(self) -> None:
        before, after = self._before, self.machine.active
        self._before = after
        if before is not None and after != before and before in self.held():
            self.wrong.append(f"{before} was taken from held cards")
        if self.held() == {DRA, PLUGIN}:
            self.wrong.append("cards are held by both modes")
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._schedule)

    def _schedule(self) -> None:
        """Make pods that are missing where there is an offer and no taint."""
        self._is_due = False
        mode = self.machine.active
        is_ready = mode is not None and self.machine.workload(mode) in self.server.objects(POD)
        if mode is None or self.machine.taint is not None or not is_ready:
            return
        for name in self.names:
            if f"t/{name}" not in self.server.objects(POD):
                self._run(name, mode)


async def lives(server: ApiServer, chance: random.Random) -> None:
    """A controller runs until it has written so often, or has nothing to write, and is killed."""
    ends = len(server.writes) + chance.randint(1, 8)
    async with controller(server, attended=False):
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                await server.until(lambda: len(server.writes) >= ends)
        except TimeoutError:
            return


@pytest.mark.parametrize("seed", SEEDS)
async def test_nodes_that_change_at_random_are_never_in_both_modes_and_end_as_wanted(
    seed: int,
) -> None:
    chance = random.Random(seed)
    async with ApiServer() as server:
        machines = [
            Machine(server, f"node-{number}", **{labels.MODE: mode, labels.ACTIVE_MODE: mode})
            for number, mode in enumerate((DRA, PLUGIN))
        ]
        users = [Users(machine) for machine in machines]
        plain = {each.plain: server.objects(POD)[f"t/{each.plain}"] for each in users}
        for _ in range(FLIPS):
            at = chance.randrange(2)
            machines[at].wish(chance.choice((DRA, PLUGIN, None)))
            users[chance.randrange(2)].budget(is_open=chance.random() < 0.6)
            for _ in range(chance.randint(1, 3)):
                await lives(server, chance)
                if chance.random() < 0.2:
                    users[chance.randrange(2)].late()
        wishes = [chance.choice((DRA, PLUGIN)) for _ in machines]
        for machine, each, wish in zip(machines, users, wishes, strict=True):
            machine.wish(wish)
            each.budget(is_open=True)
        async with controller(server, attended=False):
            for machine, wish in zip(machines, wishes, strict=True):
                await server.until(machine.is_in(wish), seconds=30.0)
            for each in users:
                await server.until(lambda: set(each.names) <= pods(server))  # noqa: B023
        for machine, each in zip(machines, users, strict=True):
            assert (machine.both, each.wrong) == ([], [])
            assert server.objects(POD)[f"t/{each.plain}"] == plain[each.plain]
        assert not [each for each in server.writes if each.method == "DELETE"]


def pods(server: ApiServer) -> set[str]:
    return {key.removeprefix("t/") for key in server.objects(POD)}
