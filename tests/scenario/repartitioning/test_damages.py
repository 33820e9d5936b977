# SPDX-License-Identifier: Apache-2.0
"""Hands that interfere with a change: whatever they do to the Node, all comes out as it is to be.

The controller is the real one. Each change is met when most stands on the Node and the host:
pods are evicted, workloads paused, one service of the host is stopped and another does not stop.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.scenario.controller.machines import allow, protect, user_pod
from tests.scenario.controller.test_controller import controller
from tests.scenario.repartitioning.conftest import CONFIG, LABELLER, PLUGIN, STATE, World
from tests.scenario.repartitioning.standins import Pod
from tests.scenario.repartitioning.test_interruptions import CARD, FULL, reset_fails
from tests.support.systemctl import Systemctl

from gpudeck.api import labels
from gpudeck.api.resources import POD
from gpudeck.controller.draining import eviction, reconciler
from gpudeck.repartitioning import stepping

CHANGE, DRAIN = "gpu.deckhouse.io/mig-change", "gpu.deckhouse.io/drain"
REQUIRED = "update.node.deckhouse.io/disruption-required"
DCGM, STUCK = "dcgm.service", "nvsm.service"
TAINT = {"key": "mig-reconfigure", "value": "true", "effect": "NoSchedule"}
DCGM_LABEL = "nvidia.com/gpu.deploy.dcgm"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is tried again soon."""
    monkeypatch.setattr(stepping, "LATER_SECONDS", 0.1)
    monkeypatch.setattr(reconciler, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(eviction, "FIRST_SECONDS", 0.02)


def edited(world: World, **fields: Any) -> None:
    """Change the record of the change as an editor does."""
    world.annotate(**{CHANGE: json.dumps(json.loads(world.notes[CHANGE]) | fields)})


def all_gone(world: World) -> None:
    """Somebody tidies up a node that is in the middle of a change."""
    world.taint()
    world.cordon(is_so=False)
    world.annotate(**{CHANGE: None, DRAIN: None})
    world.label(**{STATE: None, PLUGIN: None, LABELLER: None})


DAMAGES: dict[str, Callable[[World], None]] = {
    "the record is removed": lambda world: world.annotate(**{CHANGE: None}),
    "the record is no record": lambda world: world.annotate(**{CHANGE: "{nonsense"}),
    "the record says that it is done": lambda world: edited(world, phase="Done"),
    "the record says that it reboots": lambda world: edited(world, phase="Rebooting"),
    "the record is of another day": lambda world: edited(world, since=99_999_999_999),
    "the record names other labels": lambda world: edited(world, paused={"team": "true"}),
    "the record gives back nonsense": lambda world: edited(world, paused={PLUGIN: "n o"}),
    "the taint is removed": lambda world: world.taint(),
    "the taint is another": lambda world: world.taint(TAINT | {"effect": "PreferNoSchedule"}),
    "the node is uncordoned": lambda world: world.cordon(is_so=False),
    "the state is removed": lambda world: world.label(**{STATE: None}),
    "the state is a foreign one": lambda world: world.label(**{STATE: "fine"}),
    "workloads are let in": lambda world: world.label(**{PLUGIN: None, LABELLER: "true"}),
    "all is removed": all_gone,
}


async def stuck(world: World) -> Systemctl:
    """Begin a change, which does not go on."""
    world.cluster.evicts = False
    world.label(
        **{labels.VENDOR: "nvidia", labels.MODE: labels.MODE_DEVICE_PLUGIN, DCGM_LABEL: "true"}
    )
    world.kubelet.pods["t/trains"] = Pod([CARD.format(0)])
    world.api.put(POD, user_pod("trains"))
    host = world.services(dcgm="active", nvsm="active")
    host.stick(STUCK)
    await world.start()
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.until(lambda: world.condition.get("reason") == "UnitNotStopped")
    assert world.api.objects(POD) == {}
    assert host.state(DCGM) == "inactive"
    assert world.is_cordoned()
    return host


@contextlib.asynccontextmanager
async def interfered(world: World, *, restarted: bool) -> AsyncIterator[None]:
    """What is done in the block is done to a process that runs, or between two."""
    if restarted:
        await world.end()
    yield
    if restarted:
        await world.start()


def is_as_before(world: World, host: Systemctl) -> bool:
    """Nothing of a change is left."""
    return (
        world.is_in_service()
        and world.labels.get(DCGM_LABEL) == "true"
        and {world.labels.get(each) for each in (PLUGIN, LABELLER)} <= {None, "true"}
        and {host.state(DCGM), host.state(STUCK)} == {"active"}
        and REQUIRED not in world.notes
    )


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_change_comes_to_its_end_whatever_is_done_to_the_node(
    world: World, damage: str, *, restarted: bool
) -> None:
    async with controller(world.api, attended=False):
        host = await stuck(world)
        async with interfered(world, restarted=restarted):
            DAMAGES[damage](world)
        host.free(STUCK)
        await world.becomes("success")
        assert await world.cards() == FULL
        await world.until(lambda: is_as_before(world, host))
        assert "reboot" not in host.told


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize(
    ("config", "removes"),
    [
        ("all-balanced", False),
        ("no-such", False),
        (None, False),
        ("all-disabled", True),
        (None, True),
    ],
)
async def test_another_wish_in_the_middle_is_followed(
    world: World, config: str | None, *, removes: bool, restarted: bool
) -> None:
    async with controller(world.api, attended=False):
        host = await stuck(world)
        async with interfered(world, restarted=restarted):
            world.label(**{CONFIG: config})
            if removes:
                world.annotate(**{CHANGE: None})
        host.free(STUCK)
        states = {"no-such": "failed", None: None}
        wanted = states.get(config, "success")
        await world.until(lambda: world.labels.get(STATE) == wanted and is_as_before(world, host))
        count = 3 if config == "all-balanced" else 0
        assert [each.total() for each in await world.cards()] == [count] * 2


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
async def test_a_wish_that_is_taken_back_and_made_again_is_fulfilled(
    world: World, *, restarted: bool
) -> None:
    async with controller(world.api, attended=False):
        host = await stuck(world)
        async with interfered(world, restarted=restarted):
            world.label(**{CONFIG: None})
            world.label(**{CONFIG: "all-1g.2gb"})
        host.free(STUCK)
        await world.becomes("success")
        assert await world.cards() == FULL
        await world.until(lambda: is_as_before(world, host))


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
async def test_an_administrators_cordon_outlives_a_record_that_is_removed(
    world: World, *, restarted: bool
) -> None:
    world.cordon()
    async with controller(world.api, attended=False):
        host = await stuck(world)
        async with interfered(world, restarted=restarted):
            world.annotate(**{CHANGE: None})
        host.free(STUCK)
        await world.until(lambda: world.labels.get(STATE) == "success")
        assert world.is_cordoned()
        assert await world.cards() == FULL


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("note", [None, "nonsense"])
async def test_a_drain_that_is_tampered_with_is_asked_for_again(
    world: World, note: str | None, *, restarted: bool
) -> None:
    world.cluster.evicts = False
    world.label(**{labels.VENDOR: "nvidia", labels.MODE: labels.MODE_DEVICE_PLUGIN})
    world.kubelet.pods["t/guarded"] = Pod([CARD.format(0)])
    world.api.put(POD, user_pod("guarded"))
    protect(world.api, "guarded")
    async with controller(world.api, attended=False):
        await world.start()
        world.label(**{CONFIG: "all-1g.2gb"})
        await world.until(lambda: "disruption budget guarded" in world.condition.get("message", ""))
        async with interfered(world, restarted=restarted):
            world.annotate(**{DRAIN: note, CHANGE: None})
        await world.until(lambda: "guarded" in world.notes.get(DRAIN, ""))
        allow(world.api, "guarded")
        await world.becomes("success")
        assert world.api.objects(POD) == {}
        assert await world.cards() == FULL


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("config", ["all-1g.2gb", None])
async def test_leave_that_was_asked_for_is_taken_back_where_the_record_is_removed(
    world: World, config: str | None, *, restarted: bool
) -> None:
    host = world.services(dcgm="active")
    reset_fails(world)
    await world.start(reboot=True, reboot_approval=True)
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.until(lambda: world.condition.get("reason") == "RebootNotApproved")
    async with interfered(world, restarted=restarted):
        world.annotate(**{CHANGE: None})
        world.label(**{CONFIG: config})
        for card in (0, 1):
            world.bench.mend_reset(card)
    wanted = "success" if config else None
    await world.until(lambda: world.labels.get(STATE) == wanted and world.is_in_service())
    assert REQUIRED not in world.notes
    assert host.state(DCGM) == "active"
    assert await world.cards() == (FULL if config == "all-1g.2gb" else [Counter()] * 2)
