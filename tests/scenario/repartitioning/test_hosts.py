# SPDX-License-Identifier: Apache-2.0
"""What a change does to the host: its services that have cards open, and its reboot."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.scenario.controller.machines import allow, protect, user_pod
from tests.scenario.controller.test_controller import controller
from tests.scenario.repartitioning.conftest import CONFIG, STATE, World
from tests.scenario.repartitioning.standins import Pod
from tests.scenario.repartitioning.test_interruptions import FULL, Life, mend, reset_fails
from tests.support.systemctl import Systemctl

from gpudeck.api import labels
from gpudeck.api.resources import POD
from gpudeck.controller.draining import eviction, reconciler

REQUIRED, APPROVED = (
    f"update.node.deckhouse.io/disruption-{each}" for each in ("required", "approved")
)
DCGM = "dcgm.service"


def to_start(world: World) -> list[str]:
    """Services that are to run again, as the host knows them."""
    path = world.root / "run/gpudeck-mig-manager-stopped"
    return path.read_text().split() if path.exists() else []


async def test_services_that_ran_are_stopped_for_the_change_and_started_after_it(
    world: World,
) -> None:
    host = world.services(dcgm="active", nvsm="inactive", persistenced="active")
    host.stick(DCGM)
    await world.start()
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.until(lambda: world.condition.get("reason") == "UnitNotStopped")
    assert "Job for dcgm.service failed" in world.condition["message"]
    assert to_start(world) == [DCGM, "persistenced.service"]
    assert await world.cards() == [Counter()] * 2
    host.free(DCGM)
    await world.becomes("success")
    assert await world.cards() == FULL
    assert [host.state(f"{each}.service") for each in ("dcgm", "nvsm", "persistenced")] == [
        "active",
        "inactive",
        "active",
    ]


async def test_services_run_again_after_a_change_that_fails(world: World) -> None:
    host = world.services(dcgm="active")
    world.bench.work(1)
    await world.start()
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.becomes("failed")
    await world.until(lambda: world.condition.get("reason") == "CardInUse")
    assert host.told == [f"stop {DCGM}", f"start {DCGM}"]


async def test_services_run_again_where_the_label_is_taken_away(world: World) -> None:
    host = world.services(dcgm="active")
    world.bench.hang(1)
    await world.start()
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.until(lambda: host.state(DCGM) == "inactive")
    world.label(**{CONFIG: None})
    world.bench.unhang(1)
    await world.until(lambda: STATE not in world.labels and world.is_in_service())
    assert host.state(DCGM) == "active"


@pytest.mark.parametrize("when", ["recorded", "stopped"])
async def test_a_kill_does_not_leave_services_stopped(world: World, when: str) -> None:
    host = world.services(dcgm="active")
    world.label(**{CONFIG: "all-1g.2gb"})
    host.stick(DCGM)
    async with Life(world):
        await world.until(lambda: to_start(world))
        if when == "stopped":
            world.bench.hang(1)
            host.put(DCGM, "inactive")
    host.free(DCGM)
    world.bench.unhang(1)
    async with Life(world):
        await world.becomes("success")
    assert host.state(DCGM) == "active"
    assert await world.cards() == FULL


async def test_a_service_that_does_not_start_is_said_and_the_node_given_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpudeck.host.stopping.START_PAUSES", (0.0, 0.0))
    host = world.services(dcgm="active")
    await world.start()
    world.bench.hang(1)
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.until(lambda: host.state(DCGM) == "inactive")
    host.stick(DCGM)
    world.bench.unhang(1)
    await world.becomes("success")
    await world.until(lambda: "MigClientNotStarted" in world.events())
    assert to_start(world) == []


async def test_a_wrong_list_of_services_is_named_before_anybody_is_disturbed(
    world: World,
) -> None:
    world.services()
    world.configure("version: v1\nsystemd-services: [7]\n", "clients", "clients.yaml")
    world.kubelet.pods["team/serves"] = Pod(["GPU-00000000-0000-0000-0000-000000000000"])
    await world.start()
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.becomes("failed")
    await world.until(lambda: world.condition.get("reason") == "GpuClientsInvalid")
    assert "/clients: systemd-services[0]: 7 is not valid" in world.condition["message"]
    assert world.cluster.evicted == []
    world.list_services("dcgm")
    await world.becomes("success")


async def test_a_node_is_cordoned_for_a_change_and_only_by_us_uncordoned(world: World) -> None:
    world.cluster.stuck.add("device-plugin")
    await world.start()
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.until(lambda: world.condition.get("reason") == "Pausing")
    assert world.is_cordoned()
    world.cluster.stuck.clear()
    world.kubelet.pods.pop("d8-nvidia-gpu/device-plugin")
    await world.becomes("success")
    world.cordon()
    world.label(**{CONFIG: "all-disabled"})
    await world.until(lambda: world.labels[STATE] == "pending")
    await world.until(lambda: world.labels[STATE] == "success")
    assert world.is_cordoned()


async def test_a_node_is_emptied_before_its_reboot_and_uncordoned_after_it(world: World) -> None:
    host = world.services()
    reset_fails(world)
    world.kubelet.pods |= {"team/serves": Pod(), "team/guarded": Pod()}
    world.cluster.protected.add("team/guarded")
    await world.start(reboot=True)
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.until(lambda: world.condition.get("reason") == "Emptying")
    await world.until(lambda: "PodDisruptionBudget" in world.condition["message"])
    assert world.is_cordoned()
    assert host.told == []
    assert world.cluster.evicted == ["team/serves"]
    world.cluster.protected.clear()
    world.annotate(**{"gpu.deckhouse.io/drain-blocked": None})
    await world.until(lambda: host.told == ["reboot"])
    assert "team/guarded" not in world.kubelet.pods
    await world.end()
    mend(world)
    world.boot("boot-2")
    await world.start()
    await world.becomes("success")
    assert await world.cards() == FULL


async def test_the_controller_empties_the_node(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller itself, on the same API server, in place of its stand-in."""
    monkeypatch.setattr(reconciler, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(eviction, "FIRST_SECONDS", 0.02)
    world.cluster.evicts = False
    world.label(**{labels.VENDOR: "nvidia", labels.MODE: labels.MODE_DEVICE_PLUGIN})
    daemon = user_pod("daemon")
    daemon["metadata"]["ownerReferences"] = [
        {"kind": "DaemonSet", "name": "d", "uid": "u", "apiVersion": "apps/v1", "controller": True}
    ]
    for each in (user_pod("serves"), user_pod("guarded"), daemon):
        world.api.put(POD, each)
    protect(world.api, "guarded")
    host = world.services()
    reset_fails(world)
    async with controller(world.api, attended=False):
        await world.start(reboot=True)
        world.label(**{CONFIG: "all-1g.2gb"})
        await world.until(lambda: set(world.api.objects(POD)) == {"t/guarded", "t/daemon"})
        await world.until(lambda: "The disruption budget guarded" in world.condition["message"])
        assert host.told == []
        allow(world.api, "guarded")
        await world.until(lambda: host.told == ["reboot"])
        assert set(world.api.objects(POD)) == {"t/daemon"}
        await world.until(lambda: labels.DRAINED not in world.notes)


async def test_a_node_that_cannot_be_emptied_is_given_back(world: World) -> None:
    host: Systemctl = world.services()
    reset_fails(world)
    world.kubelet.pods["team/guarded"] = Pod()
    world.cluster.protected.add("team/guarded")
    await world.start(reboot=True, drain_seconds=1.0)
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.becomes("failed")
    await world.until(lambda: world.condition.get("reason") == "DrainTimeLimit")
    assert "PodDisruptionBudget" in world.condition["message"]
    assert host.told == []


async def waits_for_approval(world: World) -> Systemctl:
    """A node whose reboot nobody has approved yet."""
    host = world.services(dcgm="active")
    reset_fails(world)
    await world.start(reboot=True, reboot_approval=True)
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.until(lambda: world.condition.get("reason") == "RebootNotApproved")
    return host


async def test_what_is_waited_for_is_said_while_the_services_run(world: World) -> None:
    host = await waits_for_approval(world)
    assert "The card does not come back" in world.condition["message"]
    assert f"annotation {APPROVED} of the Node" in world.condition["message"]
    assert REQUIRED in world.notes
    assert host.state(DCGM) == "active"
    world.annotate(**{REQUIRED: None, APPROVED: ""})
    await world.until(lambda: "reboot" in host.told)


@pytest.mark.parametrize("label", ["all-disabled", None])
async def test_a_change_that_is_taken_back_while_approval_is_waited_for_frees_the_node(
    world: World, label: str | None
) -> None:
    host = await waits_for_approval(world)
    world.label(**{CONFIG: label})
    await world.until(lambda: world.labels.get(STATE) == ("success" if label else None))
    assert world.is_in_service()
    assert REQUIRED not in world.notes
    assert "reboot" not in host.told
    assert host.state(DCGM) == "active"
