# SPDX-License-Identifier: Apache-2.0
"""What the Node's condition says."""

import asyncio
from typing import Any

from tests.support import make
from tests.support.apiserver import ApiServer

from gpudeck.api import conditions
from gpudeck.api.resources import EVENT, NODE
from gpudeck.deviceplugin import offering, reporting
from gpudeck.kube import recording
from gpudeck.pluginconfig import selecting
from gpudeck.pluginconfig.selecting import Choices

CONFIGS = {"slice-4": "version: v1"}
PROBLEM = offering.Problem(reason="SharedResourceMissing", message="It is not there.")


def test_a_config_in_force_is_named_with_who_chose_it() -> None:
    said = reporting.condition(selecting.select(CONFIGS, Choices(label="slice-4"), None), [])
    assert (said.is_true, said.reason) == (True, "ConfigInForce")
    assert said.message == (
        "The config slice-4 is in force; the label nvidia.com/device-plugin.config of the Node "
        "chose it."
    )


def test_a_config_that_is_not_used_comes_before_what_cannot_be_offered() -> None:
    good = selecting.select(CONFIGS, Choices(label="slice-4"), None)
    assert reporting.condition(good, [PROBLEM]).reason == "SharedResourceMissing"
    bad = selecting.select(CONFIGS, Choices(label="other"), good)
    said = reporting.condition(bad, [PROBLEM])
    assert (said.is_true, said.reason) == (False, "PluginConfigUnknown")
    assert said.message.endswith("The config slice-4 stays in force.")


def test_all_that_is_not_offered_is_said_as_far_as_it_can_be_shown() -> None:
    good = selecting.select(CONFIGS, Choices(label="slice-4"), None)
    other = offering.Problem(reason="CardNotPartitioned", message="It has no partition.")
    said = reporting.condition(good, [PROBLEM, other, PROBLEM])
    assert said.reason == "SharedResourceMissing"
    assert said.message == "(1) It is not there; (2) It has no partition."
    many = [offering.Problem(reason="X", message=f"{n}: {'y' * 90}.") for n in range(16)]
    said = reporting.condition(good, many)
    assert said.message.endswith("; and 8 more.")
    assert len(said.message) < 1024


def test_without_a_config_none_is_said_to_be_in_force() -> None:
    said = reporting.condition(selecting.select({}, Choices(), None), [])
    assert said.is_true
    assert said.message == "No config is chosen; the plugin's settings alone count."
    missing = selecting.select({}, Choices(), None, absent=("sharing",))
    assert reporting.condition(missing, []) == reporting.Said(
        reason="PluginConfigMapMissing",
        message=(
            "ConfigMap sharing: it is not there; it is to hold the configs (chart value "
            "devicePlugin.config.name). No config is in force."
        ),
        is_true=False,
    )


def test_what_waits_for_pods_is_said_beside_the_config_in_force() -> None:
    selected = selecting.select({}, Choices(), None)
    waits = ("GPU-a waits until x is given back by pod q/a.", "GPU-b waits until y.")
    said = reporting.condition(selected, [], waits)
    assert (said.is_true, said.reason) == (True, "ConfigInForce")
    assert said.message == (
        "No config is chosen; the plugin's settings alone count. "
        "Given to nobody now: 2. GPU-a waits until x is given back by pod q/a."
    )


async def test_the_condition_says_when_it_was_written() -> None:
    selected = selecting.select(CONFIGS, Choices(label="slice-4"), None)
    async with ApiServer() as server, server.client() as api:
        server.put(NODE, make.node("node-0"))
        recorder = recording.Recorder(api, "device-plugin", instance="node-0")
        reporter = reporting.Reporter(api, "node-0", recorder)
        task = asyncio.create_task(reporter.run())
        reporter.show(selected, ())

        def said() -> list[dict[str, str]]:
            found = server.objects(NODE)["node-0"]["status"]["conditions"]
            return [each for each in found if each["type"] == conditions.PLUGIN_CONFIGURED]

        await server.until(said)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert said()[0]["lastHeartbeatTime"] >= said()[0]["lastTransitionTime"]


async def test_a_problem_that_passes_is_no_event_and_one_that_lasts_is() -> None:
    selected = selecting.select(CONFIGS, Choices(label="slice-4"), None)
    passing = offering.Problem(reason="CardNotPartitioned", message="It has no partition.")
    async with ApiServer() as server, server.client() as api:
        recorder = recording.Recorder(api, "device-plugin", instance="node-0")
        task = asyncio.create_task(recorder.run())
        reporter = reporting.Reporter(None, "node-0", recorder, settling_seconds=0.02)
        reporter.show(selected, (passing, PROBLEM))
        reporter.show(selected, (PROBLEM,))
        reporter.show(selected, (PROBLEM,))
        await server.until(lambda: server.objects(EVENT))
        reporter.show(selected, (PROBLEM,))
        bad = selecting.select(CONFIGS, Choices(label="other"), selected)
        reporter.show(bad, (PROBLEM,))
        await server.until(lambda: len(server.objects(EVENT)) == 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        reasons = sorted(each["reason"] for each in server.objects(EVENT).values())
    assert reasons == ["PluginConfigUnknown", "SharedResourceMissing"]


async def test_a_node_that_is_made_anew_while_it_is_told_is_told_again() -> None:
    async with ApiServer() as server, server.client() as api:
        reporter = reporting.Reporter(api, "node-0", None)

        def node() -> dict[str, Any]:
            return server.objects(NODE)["node-0"]

        def make_anew() -> None:
            server.remove(NODE, "node-0")
            server.put(NODE, {"metadata": {"name": "node-0", "uid": "second"}})
            reporter.renew()

        def changed() -> None:
            found = server.objects(NODE).get("node-0") or {}
            if found.get("metadata", {}).get("uid") == "first" and found.get("status"):
                asyncio.get_running_loop().call_soon(make_anew)

        server.put(NODE, {"metadata": {"name": "node-0", "uid": "first"}})
        server.store.on_change(changed)
        telling = asyncio.create_task(reporter.run())
        reporter.show(selecting.select(CONFIGS, Choices(label="slice-4"), None), ())
        try:
            await server.until(
                lambda: node()["metadata"]["uid"] == "second" and node().get("status")
            )
        finally:
            telling.cancel()
