# SPDX-License-Identifier: Apache-2.0
"""Groups of nodes against an API server in memory, with the chart's own templates."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from tests.chart import rendering
from tests.scenario.controller.replicas import controller
from tests.support.apiserver import ApiServer

from gpudeck.api import labels
from gpudeck.api.meta import Meta
from gpudeck.api.names import node_label
from gpudeck.api.resources import (
    CONFIG_MAP,
    CUSTOM_RESOURCE_DEFINITION,
    DAEMON_SET,
    EVENT,
    NODE,
    NODE_FEATURE,
    NODE_GROUP,
)
from gpudeck.controller.nodegroups import reconciler

pytestmark = pytest.mark.asyncio

SYSTEM = "gpudeck-system"
DEFINITION = {"metadata": {"name": "nodegroups.deckhouse.io"}}
GROUP, CONFIG, MIG = (
    "node.deckhouse.io/group",
    "node.deckhouse.io/device-gpu.config",
    "nvidia.com/mig.config",
)


def template(groups: Any = (), **meta: Any) -> dict[str, Any]:
    (found,) = [
        each
        for each in rendering.golden("default")
        if each["metadata"]["name"] == labels.NODE_WORKLOADS
    ]
    data = {**found["data"], "groups.yaml": yaml.safe_dump(list(groups))}
    return {**found, "metadata": {**found["metadata"], **meta}, "data": data}


def node(name: str = "node-0", **known: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {labels.VENDOR: "nvidia", **known}}}


def group(gpu: Any, name: str = "gpus") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeType": "Static", "gpu": gpu}}


@contextlib.asynccontextmanager
async def world(*, groups: Any = (), deckhouse: bool = True) -> AsyncIterator[ApiServer]:
    """A server with the chart's templates, and with Deckhouse's kind if wanted."""
    async with ApiServer() as server:
        if deckhouse:
            server.put(CUSTOM_RESOURCE_DEFINITION, DEFINITION)
        else:
            server.served.discard((NODE_GROUP.group, NODE_GROUP.plural))
        server.put(CONFIG_MAP, template(groups))
        yield server


def leader(server: ApiServer) -> Any:
    return controller(server, attended=False, node_workloads=labels.NODE_WORKLOADS)


def known(server: ApiServer, name: str = "node-0") -> dict[str, str]:
    found: dict[str, str] = server.objects(NODE)[name]["metadata"].get("labels", {})
    return {key: value for key, value in found.items() if key != labels.ACTIVE_MODE}


def followed(server: ApiServer, name: str) -> tuple[str, str, str] | None:
    """The status, reason and message of a Node's condition NodeGroupFollowed."""
    said = server.objects(NODE)[name].get("status", {}).get("conditions", ())
    return next(
        (
            (each["status"], each["reason"], each["message"])
            for each in said
            if each["type"] == "NodeGroupFollowed"
        ),
        None,
    )


def told(server: ApiServer, about: str, reason: str) -> dict[str, Any] | None:
    """An Event about an object."""
    return next(
        (
            each
            for each in server.objects(EVENT).values()
            if (each["involvedObject"]["name"], each["reason"]) == (about, reason)
        ),
        None,
    )


def names(server: ApiServer, kind: Any = DAEMON_SET) -> set[str]:
    return {key.partition("/")[2] for key in server.objects(kind)}


async def test_gpu_nodes_of_no_group_are_served_by_the_default_one() -> None:
    async with world(deckhouse=False) as server:
        server.put(NODE, node())
        server.put(NODE, {"metadata": {"name": "plain", "labels": {"a": "b"}}})
        async with leader(server):
            await server.until(lambda: known(server).get(labels.NODE_GROUP) == "default")
            await server.until(
                lambda: (
                    names(server)
                    == {"nvidia-device-plugin-default", "gpu-feature-discovery-default"}
                )
            )
        assert known(server, "plain") == {"a": "b"}
        made = server.objects(DAEMON_SET)[f"{SYSTEM}/nvidia-device-plugin-default"]
        owner = server.objects(CONFIG_MAP)[f"{SYSTEM}/{labels.NODE_WORKLOADS}"]["metadata"]
        assert made["metadata"]["ownerReferences"][0]["uid"] == owner["uid"]


async def test_a_node_group_that_comes_later_gets_its_nodes_and_gives_them_back() -> None:
    async with world(deckhouse=False) as server:
        server.put(NODE, node(**{GROUP: "gpus"}))
        async with leader(server):
            await server.until(lambda: known(server).get(labels.NODE_GROUP) == "default")
            server.put(NODE_GROUP, group({"sharing": "TimeSlicing"}))
            server.put(CUSTOM_RESOURCE_DEFINITION, DEFINITION)
            await server.until(lambda: known(server).get(CONFIG) == "TimeSlicing")
            assert known(server)[labels.NODE_GROUP] == "gpus"
            await server.until(lambda: "nvidia-device-plugin-gpus" in names(server))
            await server.until(lambda: "nvidia-device-plugin-gpus" in names(server, CONFIG_MAP))
            server.remove(CUSTOM_RESOURCE_DEFINITION, "nodegroups.deckhouse.io")
            await server.until(lambda: known(server).get(labels.NODE_GROUP) == "default")
            assert CONFIG not in known(server)
            await server.until(lambda: "nvidia-device-plugin-gpus" not in names(server))
            await server.until(lambda: "nvidia-device-plugin-gpus" not in names(server, CONFIG_MAP))


async def test_a_node_that_leaves_its_group_loses_the_group_s_labels_and_no_others() -> None:
    async with world() as server:
        server.put(NODE_GROUP, group({"sharing": "MIG", "mig": {"partedConfig": "all-2g.10gb"}}))
        server.put(NODE, node(**{GROUP: "gpus", "mine": "x", "nvidia.com/gpu.count": "4"}))
        async with leader(server):
            await server.until(lambda: known(server).get(MIG) == "all-2g.10gb")
            server.put(NODE_GROUP, group({"sharing": "Exclusive"}))
            await server.until(lambda: known(server).get(MIG) == "all-disabled")
            assert known(server)[CONFIG] == "Exclusive"
            moved = {"metadata": {"labels": {GROUP: "other"}}}
            async with server.client() as client:
                await client.merge_patch(NODE, "node-0", moved, Meta, manager="node-manager")
            await server.until(lambda: known(server).get(labels.NODE_GROUP) == "default")
        # The group had written it, so nobody else would ever have the partitions removed.
        assert known(server) == {
            labels.VENDOR: "nvidia",
            labels.NODE_GROUP: "default",
            GROUP: "other",
            MIG: "all-disabled",
            "mine": "x",
            "nvidia.com/gpu.count": "4",
        }


async def test_a_wrong_group_is_said_and_takes_no_other_down() -> None:
    async with world() as server:
        server.put(NODE_GROUP, group({"sharing": "TimeSlicing"}, "right"))
        server.put(NODE_GROUP, group({"sharing": "MIG", "mig": {"partedConfig": 7}}, "wrong"))
        server.put(NODE, node("node-0", **{GROUP: "right"}))
        server.put(NODE, node("node-1", **{GROUP: "wrong"}))
        async with leader(server):
            await server.until(lambda: known(server).get(CONFIG) == "TimeSlicing")
            event = await server.until(lambda: told(server, "wrong", "NodeGroupInvalid"))
            assert event["message"].startswith("spec.gpu.mig.partedConfig: 7 is not valid")
            why = f"NodeGroup wrong: {event['message']}. The node stays as it was."
            event = await server.until(lambda: told(server, "node-1", "NodeGroupInvalid"))
            assert event["message"] == why
            assert followed(server, "node-1") == ("False", "NodeGroupInvalid", why)
            assert followed(server, "node-0") is None
            assert labels.NODE_GROUP not in known(server, "node-1")
            server.put(NODE_GROUP, group({"sharing": "MIG"}, "wrong"))
            await server.until(lambda: known(server, "node-1").get(MIG) == "all-1g.5gb")
            await server.until(lambda: followed(server, "node-1") is None)
            server.put(NODE_GROUP, group({"sharing": "No"}, "wrong"))
            await server.until(lambda: followed(server, "node-1"))
            assert known(server, "node-1")[MIG] == "all-1g.5gb"
            await server.until(lambda: "nvidia-device-plugin-wrong" in names(server))


async def test_a_node_of_a_group_that_does_not_exist_says_so_until_it_does() -> None:
    async with world(groups=[{"name": "s", "selector": {}, "gpu": {"sharing": "No"}}]) as server:
        server.put(NODE_GROUP, group(None, "worker"))
        server.put(NODE, node("node-0", **{GROUP: "gpu"}))
        server.put(NODE, node("node-1", **{GROUP: "worker"}))
        server.put(NODE, {"metadata": {"name": "plain", "labels": {GROUP: "gone"}}})
        async with leader(server):
            event = await server.until(lambda: told(server, "node-0", "NodeGroupUnknown"))
            assert event["type"] == "Warning"
            assert event["message"] == (
                "label node.deckhouse.io/group: 'gpu' is not a NodeGroup; allowed: worker. "
                "The group s serves the node."
            )
            assert followed(server, "node-0") == ("False", "NodeGroupUnknown", event["message"])
            await server.until(lambda: followed(server, "node-1"))
            status, reason, message = followed(server, "node-1") or ("", "", "")
            assert (status, reason) == ("False", "NodeGroupInvalid")
            assert message.startswith("group s of the chart: nodeGroups[0].gpu.sharing: 'No' is ")
            server.put(NODE_GROUP, group({"sharing": "Exclusive"}, "gpu"))
            await server.until(lambda: known(server).get(CONFIG) == "Exclusive")
            await server.until(lambda: followed(server, "node-0") is None)
        assert followed(server, "plain") is None


async def test_without_the_kind_no_label_of_a_group_is_wrong() -> None:
    async with world() as server:
        server.put(NODE, node("node-0", **{GROUP: "gpu"}))
        async with leader(server):
            await server.until(lambda: followed(server, "node-0"))
            server.remove(CUSTOM_RESOURCE_DEFINITION, "nodegroups.deckhouse.io")
            await server.until(lambda: followed(server, "node-0") is None)


def cut(profile: str, name: str) -> dict[str, Any]:
    customs = [{"index": 0, "slices": [{"profile": profile, "count": 1}]}]
    mig = {"partedConfig": "custom", "customConfigs": customs}
    return group({"sharing": "MIG", "mig": mig}, name)


async def test_a_restart_keeps_the_partitions_of_a_group_that_cannot_be_read_any_more() -> None:
    def described(name: str) -> bool:
        content = server.objects(CONFIG_MAP)[f"{SYSTEM}/{labels.GROUP_MIG_CONFIGS}"]["data"]
        return known(server, name)[MIG] in content["config.yaml"]

    async with world() as server:
        for name in ("wrong", "right"):
            server.put(NODE_GROUP, cut("1g.5gb", name))
            server.put(NODE, node(name, **{GROUP: name}))
        async with leader(server):
            await server.until(
                lambda: all(MIG in known(server, each) for each in ("wrong", "right"))
            )
            await server.until(lambda: labels.GROUP_MIG_CONFIGS in names(server, CONFIG_MAP))
            await server.until(lambda: len(names(server)) == 6)
        before, made = known(server, "wrong")[MIG], names(server)
        server.put(NODE_GROUP, cut("nothing", "wrong"))
        server.put(NODE_GROUP, cut("2g.10gb", "right"))
        async with leader(server):
            await server.until(lambda: described("right") and server.objects(EVENT))
            assert known(server, "wrong")[MIG] == before
            assert described("wrong")
            # Its objects come in a later pass, when the first one is at its end.
            server.put(NODE_GROUP, group({"sharing": "Exclusive"}, "later"))
            await server.until(lambda: "gpu-feature-discovery-later" in names(server))
            assert names(server) >= made
            server.put(NODE_GROUP, cut("3g.20gb", "wrong"))
            await server.until(lambda: known(server, "wrong")[MIG] != before)
            await server.until(lambda: described("wrong"))
        content = server.objects(CONFIG_MAP)[f"{SYSTEM}/{labels.GROUP_MIG_CONFIGS}"]["data"]
        assert before not in content["config.yaml"]


async def test_a_daemon_set_that_the_api_server_refuses_is_said_on_the_templates() -> None:
    """A value of the chart is wrong, and nobody else would tell whose."""
    async with world() as server:
        server.fail(1, 422, method="PATCH", path="/daemonsets/nvidia-device-plugin-default")
        async with leader(server):
            await server.until(lambda: server.objects(EVENT))
        (event,) = server.objects(EVENT).values()
        assert event["involvedObject"]["name"] == labels.NODE_WORKLOADS
        assert "nvidia-device-plugin-default" in event["message"]


async def test_groups_of_the_chart_choose_nodes_by_label() -> None:
    entry = {
        "name": "cut",
        "selector": {"matchLabels": {"pool": "cut"}},
        "gpu": {
            "sharing": "MIG",
            "mig": {
                "partedConfig": "custom",
                "customConfigs": [{"index": 0, "slices": [{"profile": "1g.5gb", "count": 7}]}],
            },
        },
    }
    async with world(groups=[entry], deckhouse=False) as server:
        server.put(NODE, node(pool="cut"))
        server.put(NODE, node("node-1"))
        async with leader(server):
            await server.until(lambda: known(server).get(labels.NODE_GROUP) == "cut")
            await server.until(lambda: known(server, "node-1").get(labels.NODE_GROUP) == "default")
            await server.until(lambda: labels.GROUP_MIG_CONFIGS in names(server, CONFIG_MAP))
            content = server.objects(CONFIG_MAP)[f"{SYSTEM}/{labels.GROUP_MIG_CONFIGS}"]["data"]
            assert known(server)[MIG] in content["config.yaml"]
            server.put(CONFIG_MAP, template())
            await server.until(lambda: known(server).get(labels.NODE_GROUP) == "default")
            assert known(server)[MIG] == "all-disabled"
            await server.until(lambda: labels.GROUP_MIG_CONFIGS not in names(server, CONFIG_MAP))


async def test_what_somebody_deletes_or_changes_comes_back() -> None:
    async with world(deckhouse=False) as server:
        server.put(NODE, node())
        async with leader(server):
            await server.until(lambda: known(server).get(labels.NODE_GROUP) == "default")
            await server.until(lambda: "nvidia-device-plugin-default" in names(server))
            server.remove(DAEMON_SET, f"{SYSTEM}/nvidia-device-plugin-default")
            await server.until(lambda: "nvidia-device-plugin-default" in names(server))
            server.put(NODE, node(**{labels.NODE_GROUP: "mine"}))
            await server.until(lambda: known(server).get(labels.NODE_GROUP) == "default")


async def passed(server: ApiServer, name: str) -> None:
    """Wait until a node that comes now is labelled: what was asked for before it is done."""
    server.put(NODE, node(name))
    await server.until(lambda: known(server, name).get(labels.NODE_GROUP) == "default")


async def test_nothing_is_made_again_while_the_release_is_removed() -> None:
    async with world(deckhouse=False) as server:
        server.put(NODE, node())
        async with leader(server):
            await server.until(lambda: "nvidia-device-plugin-default" in names(server))
            await server.until(lambda: "gpu-feature-discovery-default" in names(server))
            server.remove(CONFIG_MAP, f"{SYSTEM}/{labels.NODE_WORKLOADS}")
            await passed(server, "node-1")
            server.remove(DAEMON_SET, f"{SYSTEM}/nvidia-device-plugin-default")
            await passed(server, "node-2")
        assert names(server) == {"gpu-feature-discovery-default"}


async def test_labels_of_cards_go_when_nobody_speaks_for_the_node_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciler, "LEFT_SECONDS", 0.05)
    async with world(deckhouse=False) as server:
        for name in ("node-0", "node-1", "gone", "g" * 80):
            server.put(NODE_FEATURE, feature(name))
        server.put(NODE_FEATURE, {**feature("gone"), "metadata": worker("gone")})
        # Of NVIDIA's own program, before ours has ever run there.
        theirs = {**worker("theirs"), "name": "nvidia-features-for-theirs"}
        server.put(NODE_FEATURE, {"metadata": theirs, "spec": {}})
        # Of somebody who calls it so.
        named = {**feature("gone")["metadata"], "name": "mine"}
        server.put(NODE_FEATURE, {"metadata": named, "spec": {}})
        left = {"gone", "mine", "nvidia-features-for-theirs"}
        server.put(NODE, node())
        server.put(NODE, node("node-1"))
        async with leader(server):
            await server.until(
                lambda: (
                    names(server, NODE_FEATURE)
                    == left | {"nvidia-features-for-node-0", "nvidia-features-for-node-1"}
                )
            )
            server.put(NODE, {"metadata": {"name": "node-1", "labels": {"a": "b"}}})
            await server.until(
                lambda: names(server, NODE_FEATURE) == left | {"nvidia-features-for-node-0"}
            )
            server.put(NODE, node(**{"nvidia.com/gpu.deploy.gpu-feature-discovery": "false"}))
            await server.until(lambda: names(server, NODE_FEATURE) == left)


def worker(name: str) -> dict[str, Any]:
    label = node_label(name)
    return {"name": name, "namespace": SYSTEM, "labels": {labels.FEATURES_NODE: label}}


def feature(name: str) -> dict[str, Any]:
    found = worker(name)
    found["labels"] |= {labels.COMPONENT: labels.DISCOVERY}
    return {"metadata": {**found, "name": f"nvidia-features-for-{name}"}, "spec": {}}


async def test_a_quiet_world_is_not_written_to() -> None:
    async with world() as server:
        server.put(NODE_GROUP, group({"sharing": "TimeSlicing"}))
        server.put(NODE, node(**{GROUP: "gpus"}))
        async with leader(server):
            await server.until(lambda: known(server).get(CONFIG) == "TimeSlicing")
            await server.until(lambda: "gpu-feature-discovery-gpus" in names(server))
            await server.until(
                lambda: labels.ACTIVE_MODE in server.objects(NODE)["node-0"]["metadata"]["labels"]
            )
        before = {
            key: each["metadata"]["resourceVersion"]
            for kind in (NODE, DAEMON_SET, CONFIG_MAP)
            for key, each in server.objects(kind).items()
        }
        server.put(NODE, node("late"))
        async with leader(server):
            await server.until(lambda: known(server, "late").get(labels.NODE_GROUP) == "default")
        after = {
            key: each["metadata"]["resourceVersion"]
            for kind in (NODE, DAEMON_SET, CONFIG_MAP)
            for key, each in server.objects(kind).items()
            if key != "late"
        }
        assert after == before


@pytest.mark.parametrize("count", range(1, 8))
async def test_a_leader_that_fails_at_any_write_goes_on_from_there(count: int) -> None:
    async with world() as server:
        server.put(NODE_GROUP, group({"sharing": "MIG"}))
        server.put(NODE, node(**{GROUP: "gpus"}))
        server.fail(count, status=503, method="PATCH")
        async with leader(server):
            await server.until(lambda: known(server).get(MIG) == "all-1g.5gb")
            await server.until(lambda: len(names(server)) == 4)
            await server.until(lambda: "nvidia-device-plugin-gpus" in names(server, CONFIG_MAP))


async def test_a_node_that_others_write_to_gets_its_labels_all_the_same() -> None:
    """The API server answers a patch with a conflict where others are faster five times (1.37)."""
    async with world() as server:
        server.put(NODE_GROUP, group({"sharing": "Exclusive"}))
        server.put(NODE, node())
        async with leader(server):
            await server.until(lambda: known(server).get(labels.NODE_GROUP) == "default")
            await server.until(lambda: "status" in server.objects(NODE)["node-0"])
            await passed(server, "node-1")
            server.fail(1, status=409, method="PATCH", path="nodes/node-0")
            settled = copy.deepcopy(server.objects(NODE)["node-0"])
            settled["metadata"]["labels"][GROUP] = "gpus"
            server.put(NODE, settled)
            await server.until(lambda: known(server).get(labels.NODE_GROUP) == "gpus")


async def test_a_replica_that_does_not_lead_tells_nothing() -> None:
    async with world() as server:
        server.put(NODE_GROUP, group({"sharing": "No"}))
        async with leader(server), leader(server):
            await passed(server, "node-1")
            await server.until(lambda: server.objects(EVENT))
            await passed(server, "node-2")
        assert [each["count"] for each in server.objects(EVENT).values()] == [1]


async def test_nodes_stay_in_the_chart_s_groups_while_its_config_map_is_away() -> None:
    entry = {
        "name": "whole",
        "selector": {"matchLabels": {"pool": "whole"}},
        "gpu": {"sharing": "Exclusive"},
    }
    async with world(groups=[entry]) as server:
        server.put(NODE, node(pool="whole"))
        async with leader(server):
            await server.until(lambda: known(server).get(labels.NODE_GROUP) == "whole")
            server.remove(CONFIG_MAP, f"{SYSTEM}/{labels.NODE_WORKLOADS}")
            await passed(server, "node-1")
        assert known(server)[labels.NODE_GROUP] == "whole"
