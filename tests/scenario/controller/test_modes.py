# SPDX-License-Identifier: Apache-2.0
"""Nodes and their modes, against an API server in memory and a stand-in for the node."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.scenario.controller.machines import (
    CARD,
    CARDS,
    DRA,
    PLUGIN,
    Machine,
    allow,
    is_said,
    protect,
    resource_slice,
    workload,
)
from tests.scenario.controller.test_controller import controller
from tests.support import gpus
from tests.support.apiserver import ApiServer

from gpudeck.api import conditions, labels, names
from gpudeck.api.meta import Meta
from gpudeck.api.resources import (
    DEVICE_TAINT_RULE,
    EVENT,
    NODE,
    PHYSICAL_GPU,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
)

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("quick")]


@contextlib.asynccontextmanager
async def story(mode: str, **known: str) -> AsyncIterator[Machine]:
    """A node that has the mode already, with an administrator's wish for it."""
    async with ApiServer() as server:
        machine = Machine(server, **{labels.MODE: mode, labels.ACTIVE_MODE: mode, **known})
        await server.until(lambda: len(server.objects(POD)) == 1)
        yield machine
        assert machine.both == []


@pytest.mark.parametrize("default", labels.MODES)
async def test_nodes_with_cards_get_the_default_mode_or_their_own(default: str) -> None:
    async with ApiServer() as server:
        machine = Machine(server)
        for name, known in {"plain": {}, "node-1": CARDS | {labels.MODE: DRA}}.items():
            server.put(NODE, {"metadata": {"name": name, "labels": known}})
        async with controller(server, attended=False, default_mode=default):
            await server.until(machine.is_in(default))
            found = server.objects(NODE)
            await server.until(
                lambda: found["node-1"]["metadata"]["labels"].get(labels.ACTIVE_MODE) == DRA
            )
        assert labels.ACTIVE_MODE not in server.objects(NODE)["plain"]["metadata"]["labels"]
        assert machine.said["reason"] == "ModeActive"
        assert machine.said["lastHeartbeatTime"] >= machine.said["lastTransitionTime"]


@pytest.mark.parametrize(("old", "new"), [(DRA, PLUGIN), (PLUGIN, DRA)])
async def test_only_pods_with_cards_go_and_the_other_mode_comes(old: str, new: str) -> None:
    async with story(old) as machine:
        server = machine.server
        machine.run_pod("trains", claim=old == DRA, **({} if old == DRA else CARD))
        machine.run_pod("serves")
        machine.run_pod("stores", **{"nvidia.com/hostdev": "1"})
        async with controller(server, attended=False):
            await server.until(machine.is_in(old))
            machine.wish(new)
            await server.until(machine.is_in(new))
            expected = {"ModeChangeStarting", "DrainingPods", "ModeChanged"}
            await server.until(lambda: expected <= machine.events())
        assert machine.pods() == {"t/serves", "t/stores"}
        assert server.objects(RESOURCE_CLAIM) == {}


@pytest.mark.parametrize(("old", "new"), [(DRA, PLUGIN), (PLUGIN, DRA)])
async def test_a_pod_that_calls_itself_ours_is_anybody_s(old: str, new: str) -> None:
    """Whoever makes a pod chooses its labels, and its namespace is what tells."""
    async with story(old) as machine:
        server = machine.server
        component = workload(old)["metadata"]["labels"][labels.COMPONENT]
        for name, has_card in (("trains", True), ("serves", False)):
            limits = CARD if has_card and old == PLUGIN else {}
            machine.run_pod(name, claim=has_card and old == DRA, **limits)
            found = copy.deepcopy(server.objects(POD)[f"t/{name}"])
            found["metadata"]["labels"][labels.COMPONENT] = component
            server.put(POD, found)
        protect(server, "trains")
        async with controller(server, attended=False):
            await server.until(machine.is_in(old))
            machine.wish(new)
            await server.until(lambda: "to go: t/trains." in machine.said["message"])
            allow(server, "trains")
            await server.until(machine.is_in(new))
        assert machine.pods() == {"t/serves"}


@pytest.mark.parametrize(("old", "new"), [(DRA, PLUGIN), (PLUGIN, DRA)])
@pytest.mark.parametrize("killed_at", [1, 2, 3])
async def test_a_controller_that_is_killed_at_any_write_goes_on(
    old: str, new: str, killed_at: int
) -> None:
    """Each life ends at its n-th write that concerns the node, to the very end of the change."""
    async with story(old) as machine:
        server = machine.server
        for name in ("first", "second"):
            machine.run_pod(name, claim=old == DRA, **({} if old == DRA else CARD))
        machine.run_pod("serves")
        machine.wish(new)

        def writes() -> int:
            paths = [each.path for each in server.writes]
            return sum("/nodes/node-0" in path or "/eviction" in path for path in paths)

        lives = 0
        while not machine.is_in(new)():
            before = writes()
            lives += 1
            async with controller(server, attended=False):
                await server.until(
                    lambda: machine.is_in(new)() or writes() >= before + killed_at  # noqa: B023
                )
        assert lives > 1
        assert machine.pods() == {"t/serves"}


async def test_a_change_of_mind_turns_back_from_the_draining() -> None:
    async with story(PLUGIN) as machine:
        server = machine.server
        machine.run_pod("trains", **CARD)
        protect(server, "trains")
        async with controller(server, attended=False):
            machine.wish(DRA)
            await server.until(
                lambda: "The disruption budget trains needs 1" in machine.said.get("message", "")
            )
            assert machine.said["reason"] == "DrainingPods"
            assert machine.taint == DRA
            assert "t/trains is not evicted" in machine.said["message"]
            machine.wish(PLUGIN)
            await server.until(machine.is_in(PLUGIN))
        assert machine.pods() == {"t/trains"}


async def test_a_change_of_mind_turns_back_when_no_mode_is_in_force() -> None:
    async with story(DRA) as machine:
        server = machine.server
        machine.lingering.add(DRA)
        async with controller(server, attended=False):
            machine.wish(PLUGIN)
            await server.until(machine.in_phase("WaitingForWorkloads"))
            assert machine.active is None
            assert "nvidia-adapter-node-0 is still on the node" in machine.said["message"]
            machine.wish(DRA)
            await server.until(machine.is_in(DRA))


async def test_what_is_held_after_all_is_given_back_by_the_mode_that_gave_it() -> None:
    """A pod that was bound before the taint was seen comes up when its mode has ended."""
    async with story(DRA) as machine:
        server = machine.server
        machine.lingering.add(DRA)
        async with controller(server, attended=False):
            machine.wish(PLUGIN)
            await server.until(machine.in_phase("WaitingForWorkloads"))
            machine.lingering.clear()
            protect(server, "late")
            machine.run_pod("late", claim=True)
            await server.until(lambda: machine.active == DRA)
            allow(server, "late")
            await server.until(machine.is_in(PLUGIN))
        assert machine.pods() == set()


async def test_a_budget_that_gives_way_lets_the_change_go_on() -> None:
    async with story(PLUGIN) as machine:
        server = machine.server
        machine.run_pod("trains", **CARD)
        protect(server, "trains")
        async with controller(server, attended=False, mode_seconds=2.0):
            machine.wish(DRA)
            await server.until(lambda: "ModeChangeSlow" in machine.events())
            assert "nothing is forced" in machine.said["message"]
            assert machine.pods() == {"t/trains"}
            allow(server, "trains")
            await server.until(machine.is_in(DRA))


async def test_an_eviction_that_a_webhook_refuses_is_told_and_tried_again() -> None:
    """It ends when the webhook changes its mind, and nothing of the Node tells of that."""
    async with story(PLUGIN) as machine:
        server = machine.server
        machine.run_pod("trains", **CARD)
        server.fail(2, 403, method="POST", path="/pods/trains/eviction")
        async with controller(server, attended=False):
            machine.wish(DRA)
            await server.until(lambda: "t/trains is not evicted" in machine.said.get("message", ""))
            await server.until(machine.is_in(DRA))


async def test_a_pod_with_a_card_by_a_name_of_an_earlier_config_goes_too() -> None:
    """Its name tells nothing, and the plugin offers it no more: who has the card tells it."""
    async with story(PLUGIN) as machine:
        server = machine.server
        held = {"namespace": "t", "pod": "trains", "container": "main", "device": "GPU-0"}
        plugin = [held | {"resource": "nvidia.com/h100"}]
        server.put(PHYSICAL_GPU, gpus.gpu(occupancy={"plugin": plugin}))
        machine.run_pod("trains", **{"nvidia.com/h100": "1"})
        protect(server, "trains")
        async with controller(server, attended=False):
            machine.wish(DRA)
            await server.until(machine.in_phase("DrainingPods"))
            assert machine.active == PLUGIN
            allow(server, "trains")
            await server.until(machine.is_in(DRA))
        assert machine.pods() == set()


async def test_a_claim_without_a_pod_is_waited_for() -> None:
    async with story(DRA) as machine:
        server = machine.server
        server.put(RESOURCE_CLAIM, gpus.claim("kept", gpus.result()))
        async with controller(server, attended=False):
            machine.wish(PLUGIN)
            await server.until(machine.in_phase("WaitingForClaims"))
            assert "t/kept" in machine.said["message"]
            server.remove(RESOURCE_CLAIM, "t/kept")
            await server.until(machine.is_in(PLUGIN))


async def test_a_mode_that_offers_nothing_keeps_others_off_for_a_while_only() -> None:
    async with story(DRA) as machine:
        server = machine.server
        machine.has_cards = False
        async with controller(server, attended=False, mode_seconds=4.0):
            machine.wish(PLUGIN)
            await server.until(machine.in_phase("WaitingForOffer"))
            assert "offers no card yet" in machine.said["message"]
            assert machine.taint == PLUGIN
            await server.until(machine.is_in(PLUGIN))
            text = "New pods are let onto the node all the same"
            await server.until(
                lambda: any(text in each["message"] for each in server.objects(EVENT).values())
            )


async def test_what_a_killed_device_plugin_has_said_of_its_config_goes_with_its_mode() -> None:
    async with story(PLUGIN) as machine:
        server = machine.server
        said = {"type": conditions.PLUGIN_CONFIGURED, "status": "True", "reason": "R"}
        body = {"metadata": {"name": "node-0"}, "status": {"conditions": [said]}}

        def types() -> set[str]:
            return {each["type"] for each in machine.node["status"]["conditions"]}

        async with server.client() as plugin, controller(server, attended=False):
            await plugin.apply(
                NODE, body, Meta, manager=labels.MANAGER_DEVICE_PLUGIN, subresource="status"
            )
            await server.until(machine.is_in(PLUGIN))
            assert conditions.PLUGIN_CONFIGURED in types()
            machine.wish(DRA)
            await server.until(machine.is_in(DRA))
            await server.until(lambda: types() == {conditions.MODE_ACTIVE})


UNOFFERED = "The card is in partitioning mode, so it cannot be used whole."


def tell(server: ApiServer, status: str, message: str) -> None:
    """Whoever offers the node's card says whether it is offered."""
    said = gpus.condition(conditions.PUBLISHED, status, message=message)
    found = gpus.gpu()
    found["status"]["conditions"] = [said]
    server.put(PHYSICAL_GPU, found)


@pytest.mark.parametrize(("old", "new"), [(DRA, PLUGIN), (PLUGIN, DRA)])
async def test_a_node_that_truly_offers_nothing_is_in_its_mode_and_says_why(
    old: str, new: str
) -> None:
    async with story(old) as machine:
        server = machine.server
        machine.devices = 0
        async with controller(server, attended=False):
            await server.until(machine.is_in(old))
            machine.has_cards = new == DRA
            tell(server, "False", UNOFFERED)
            machine.wish(new)
            await server.until(machine.in_phase("NothingOffered"))
            assert (machine.active, machine.taint, machine.said["status"]) == (new, None, "True")
            assert machine.said["message"].endswith(
                f"but none is offered. node-0-0000-1b-00-0: {UNOFFERED}"
            )
            for status, phase in (("True", "ModeActive"), ("False", "NothingOffered")):
                # Nothing of the Node is left to be looked at when the card is told of.
                name = f"after-{status.lower()}"
                server.put(NODE, {"metadata": {"name": name, "labels": CARDS}})
                await server.until(functools.partial(is_said, server, name, "ModeActive"))
                tell(server, status, "The driver is not there.")
                await server.until(machine.in_phase(phase))
            await server.until(lambda: machine.said["message"].endswith("The driver is not there."))


def cordon(server: ApiServer, device: str, reason: str = "", **spec: Any) -> None:
    """Somebody cordons a device of the node's card."""
    name = names.taint_rule_name("node-0", device)
    meta = {"name": name, "labels": {labels.CARD: "node-0-0000-1b-00-0"}}
    if reason:
        meta["annotations"] = {labels.REASON: reason}
    taint = {"key": labels.CORDONED, "effect": "NoSchedule"} | spec
    server.put(DEVICE_TAINT_RULE, {"metadata": meta, "spec": {"taint": taint}})


async def test_a_node_whose_cards_are_all_cordoned_offers_nothing_and_says_why() -> None:
    async with story(DRA) as machine:
        server = machine.server
        tell(server, "True", "Offered.")
        async with controller(server, attended=False):
            await server.until(machine.is_in(DRA))
            cordon(server, "gpu-0000-1b-00-0", "fan is loud.")
            await server.until(machine.in_phase("NothingOffered"))
            assert machine.said["message"].endswith(
                "none is offered. node-0-0000-1b-00-0: It is cordoned: fan is loud."
            )
            cordon(server, "share-0000-1b-00-0")
            server.remove(DEVICE_TAINT_RULE, names.taint_rule_name("node-0", "gpu-0000-1b-00-0"))
            await server.until(lambda: machine.said["message"].endswith("It is cordoned."))
            cordon(server, "share-0000-1b-00-0", effect="None")
            await server.until(machine.in_phase("ModeActive"))
            cordon(server, "gpu-0000-1b-00-0")
            await server.until(machine.in_phase("NothingOffered"))
        async with controller(server, attended=False):  # It finds all as it is to be.
            server.remove(DEVICE_TAINT_RULE, names.taint_rule_name("node-0", "gpu-0000-1b-00-0"))
            await server.until(machine.in_phase("ModeActive"))


async def test_a_cordon_says_nothing_of_a_node_in_the_other_mode() -> None:
    async with story(PLUGIN) as machine:
        server = machine.server
        tell(server, "True", "Offered.")
        cordon(server, "gpu-0000-1b-00-0")
        async with controller(server, attended=False):
            await server.until(machine.is_in(PLUGIN))
            machine.wish(DRA)
            await server.until(machine.in_phase("NothingOffered"))
            machine.wish(PLUGIN)
            await server.until(machine.is_in(PLUGIN))


async def test_a_server_without_rules_of_taints_keeps_nobody_from_leading() -> None:
    async with story(DRA) as machine:
        server = machine.server
        server.served.discard((DEVICE_TAINT_RULE.group, DEVICE_TAINT_RULE.plural))
        async with controller(server, attended=False):
            await server.until(machine.is_in(DRA))


@pytest.mark.parametrize("mode", [DRA, PLUGIN])
async def test_a_node_on_which_nobody_hands_out_its_cards_says_so(mode: str) -> None:
    async with story(mode) as machine:
        server = machine.server
        tell(server, "True", "Offered.")
        async with controller(server, attended=False, unattended_seconds=0.0, default_mode=mode):
            await server.until(machine.in_phase("ModeActive"))
            server.put(POD, workload(mode, ready=False))
            await server.until(machine.in_phase("NothingOffered"))
            assert machine.said["message"].endswith(
                "but none is offered. No pod that hands them out is Ready on the node."
            )
            server.put(POD, workload(mode))
            await server.until(machine.in_phase("ModeActive"))


async def test_a_pool_that_is_not_whole_yet_is_waited_for() -> None:
    async with story(PLUGIN) as machine:
        server = machine.server
        async with controller(server, attended=False):
            machine.unready.add(DRA)
            machine.wish(DRA)
            await server.until(lambda: machine.slice in server.objects(RESOURCE_SLICE))
            half = resource_slice(0)
            half["spec"]["pool"]["resourceSliceCount"] = 2
            server.put(RESOURCE_SLICE, half)
            tell(server, "False", UNOFFERED)
            server.put(POD, workload(DRA))
            await server.until(lambda: "offers no card yet" in machine.said["message"])
            other = copy.deepcopy(half) | {"metadata": {"name": "slice-1"}}
            server.put(RESOURCE_SLICE, other)
            await server.until(machine.in_phase("NothingOffered"))
            server.remove(RESOURCE_SLICE, "slice-1")


async def test_a_word_that_is_no_mode_changes_nothing_and_is_told() -> None:
    async with story(DRA) as machine:
        server = machine.server
        async with controller(server, attended=False):
            machine.wish("mps")
            await server.until(machine.in_phase("ModeUnknown"))
            assert machine.said["message"] == (
                "label gpu.deckhouse.io/mode: 'mps' is not valid; allowed: dra or device-plugin. "
                "The mode dra stays in force."
            )
            await server.until(lambda: "ModeUnknown" in machine.events())
            machine.wish(None)
            await server.until(machine.is_in(PLUGIN))  # The default.


async def test_a_node_whose_cards_are_gone_bears_no_mark_of_a_mode() -> None:
    async with story(PLUGIN) as machine:
        server = machine.server
        machine.run_pod("trains", **CARD)
        protect(server, "trains")
        async with controller(server, attended=False):
            machine.wish(DRA)
            await server.until(machine.in_phase("DrainingPods"))
            node = machine.node
            node["metadata"]["labels"] = {labels.MODE: DRA, labels.MIG_STATE: "success"}
            node["metadata"]["annotations"] = {labels.MIG_CHANGE: "{}"}
            server.put(NODE, node)
            await server.until(lambda: (machine.active, machine.taint) == (None, None))
            await server.until(lambda: machine.said == {})
            assert machine.labels == {labels.MODE: DRA}
            assert not machine.node["metadata"].get("annotations")
        assert machine.pods() == {"t/trains"}
