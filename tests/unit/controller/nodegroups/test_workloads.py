# SPDX-License-Identifier: Apache-2.0
"""The objects of a group, made from the chart's own templates as they are rendered."""

from __future__ import annotations

from typing import Any

import pytest
from tests.chart import rendering

from gpudeck import errors
from gpudeck.api import labels
from gpudeck.api.meta import OwnerReference
from gpudeck.api.resources import CONFIG_MAP, DAEMON_SET, ROLE
from gpudeck.controller.nodegroups import groups, workloads
from gpudeck.controller.nodegroups.groups import Group, Sharing, Use, World
from gpudeck.mig import configs
from gpudeck.pluginconfig import model
from gpudeck.pluginconfig import reading as plugin_reading

OWNER = OwnerReference(api_version="v1", kind="ConfigMap", name="gpu-node-workloads", uid="u")
SLICED = Group(name="s", key="s", use=Use(sharing=Sharing.TIME_SLICING, partition_count=8))
CUSTOM = (configs.Entry(enabled=True, devices=(0,), counts={"1g.5gb": 7}),)
CUT = Group(
    name="c", key="c", use=Use(sharing=Sharing.MIG, mig_config="custom-c-0", mig_custom=CUSTOM)
)
WORLD = World(node_groups={"s": SLICED, "c": CUT})


@pytest.fixture(scope="module")
def content() -> dict[str, str]:
    (found,) = [
        each["data"]
        for each in rendering.golden("default")
        if each["metadata"]["name"] == labels.NODE_WORKLOADS
    ]
    return dict(found)


@pytest.fixture(scope="module")
def made(content: dict[str, str]) -> dict[tuple[Any, str], dict[str, Any]]:
    return workloads.wanted(workloads.read(content), WORLD, "gpudeck-system", OWNER)


def environment(found: dict[str, Any]) -> dict[str, str]:
    (container,) = found["spec"]["template"]["spec"]["containers"]
    names = [each["name"] for each in container["env"]]
    assert len(names) == len(set(names))
    return {each["name"]: each.get("value", "") for each in container["env"]}


def test_each_group_has_its_daemon_sets_and_configs(made: dict[Any, Any]) -> None:
    assert set(made) == {
        (DAEMON_SET, "nvidia-device-plugin-default"),
        (DAEMON_SET, "gpu-feature-discovery-default"),
        (DAEMON_SET, "nvidia-device-plugin-s"),
        (DAEMON_SET, "gpu-feature-discovery-s"),
        (DAEMON_SET, "nvidia-device-plugin-c"),
        (DAEMON_SET, "gpu-feature-discovery-c"),
        (CONFIG_MAP, "nvidia-device-plugin-s"),
        (CONFIG_MAP, "nvidia-device-plugin-c"),
        (CONFIG_MAP, "nvidia-mig-custom-configs"),
        (ROLE, "gpu-node-groups"),
    }
    for body in made.values():
        assert body["metadata"]["namespace"] == "gpudeck-system"
        assert body["metadata"]["ownerReferences"] == [OWNER]
        assert labels.NODE_GROUP in body["metadata"]["labels"]


def test_nodes_may_read_the_configs_of_groups_and_no_others(
    made: dict[Any, Any], content: dict[str, str]
) -> None:
    assert made[ROLE, "gpu-node-groups"]["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["nvidia-device-plugin-c", "nvidia-device-plugin-s"],
            "verbs": ["get", "list", "watch"],
        }
    ]
    unreadable = World(node_groups={"s": SLICED, "wrong": None})
    kept = workloads.wanted(workloads.read(content), unreadable, "n", OWNER)
    (rule,) = kept[ROLE, "gpu-node-groups"]["rules"]
    assert rule["resourceNames"] == ["nvidia-device-plugin-s", "nvidia-device-plugin-wrong"]
    alone = workloads.wanted(workloads.read(content), World(), "n", OWNER)
    assert not [name for resource, name in alone if resource is ROLE]


def test_pods_of_two_groups_never_meet_on_a_node(made: dict[Any, Any]) -> None:
    for (resource, name), body in made.items():
        if resource is not DAEMON_SET:
            continue
        key, pods = name.rpartition("-")[2], body["spec"]["template"]
        assert pods["spec"]["nodeSelector"][labels.NODE_GROUP] == key
        assert pods["spec"]["nodeSelector"][labels.VENDOR] == "nvidia"
        assert body["spec"]["selector"]["matchLabels"][labels.NODE_GROUP] == key
        for wanted, value in body["spec"]["selector"]["matchLabels"].items():
            assert pods["metadata"]["labels"][wanted] == value


def test_the_plugin_alone_waits_for_the_mode(made: dict[Any, Any]) -> None:
    plugin = made[DAEMON_SET, "nvidia-device-plugin-s"]["spec"]["template"]["spec"]
    discovery = made[DAEMON_SET, "gpu-feature-discovery-s"]["spec"]["template"]["spec"]
    assert plugin["nodeSelector"][labels.ACTIVE_MODE] == "device-plugin"
    assert labels.ACTIVE_MODE not in discovery["nodeSelector"]


def test_a_group_s_processes_read_its_configs(made: dict[Any, Any]) -> None:
    for name in ("nvidia-device-plugin-s", "gpu-feature-discovery-s"):
        found = environment(made[DAEMON_SET, name])
        assert found["GPUDECK_GROUP_CONFIG_MAP"] == "nvidia-device-plugin-s"
    plain = environment(made[DAEMON_SET, "nvidia-device-plugin-default"])
    assert plain["GPUDECK_GROUP_CONFIG_MAP"] == ""


def test_another_use_of_the_cards_restarts_no_pod_of_the_group(content: dict[str, str]) -> None:
    templates = workloads.read(content)
    whole = Group(name="s", key="s", use=Use(sharing=Sharing.EXCLUSIVE))
    for name in workloads.TEMPLATES:
        before = workloads.daemon_set(templates[name], name, SLICED, OWNER)
        assert workloads.daemon_set(templates[name], name, whole, OWNER) == before


def test_configs_of_a_group_are_what_the_plugin_reads(made: dict[Any, Any]) -> None:
    data = made[CONFIG_MAP, "nvidia-device-plugin-s"]["data"]
    found = {name: plugin_reading.parse(text) for name, text in data.items()}
    assert set(found) == {"Exclusive", "TimeSlicing", "MIG"}
    assert found["Exclusive"].flags.mig_strategy is model.MigStrategy.NONE
    assert found["MIG"].flags.mig_strategy is model.MigStrategy.MIXED
    sliced = found["TimeSlicing"].sharing
    assert sliced is not None
    assert sliced.strategy is model.Strategy.TIME_SLICING
    assert [(each.name, each.replicas) for each in sliced.resources] == [("nvidia.com/gpu", 8)]
    assert sliced.fail_requests_greater_than_one
    assert not sliced.rename_by_default


def test_sharing_a_card_by_one_is_no_sharing() -> None:
    group = Group(name="s", key="s", use=Use(sharing=Sharing.TIME_SLICING, partition_count=1))
    found = workloads.config_map(group, "n", OWNER)
    assert found is not None
    assert plugin_reading.parse(found["data"]["TimeSlicing"]).sharing is None


def test_configs_of_mig_are_what_mig_reads(made: dict[Any, Any]) -> None:
    text = made[CONFIG_MAP, "nvidia-mig-custom-configs"]["data"]["config.yaml"]
    assert configs.read(text).by_name == {"custom-c-0": CUSTOM}


def test_templates_are_not_changed(content: dict[str, str]) -> None:
    templates = workloads.read(content)
    workloads.wanted(templates, WORLD, "n", OWNER)
    assert templates == workloads.read(content)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"nvidia-device-plugin.yaml": None}, "data[nvidia-device-plugin.yaml]"),
        ({"nvidia-device-plugin.yaml": "a: ["}, "data[nvidia-device-plugin.yaml]"),
        (
            {"gpu-feature-discovery.yaml": "metadata: {}"},
            "data[gpu-feature-discovery.yaml].spec.selector",
        ),
        ({"gpu-feature-discovery.yaml": "5"}, "data[gpu-feature-discovery.yaml].metadata"),
    ],
)
def test_a_wrong_template_is_refused_by_its_place(
    content: dict[str, str], change: dict[str, str | None], field: str
) -> None:
    wrong = {name: text for name, text in {**content, **change}.items() if text is not None}
    with pytest.raises(errors.InvalidError) as refused:
        workloads.read(wrong)
    assert refused.value.field == field


def test_groups_that_are_not_read_need_nothing() -> None:
    assert workloads.config_map(groups.DEFAULT_GROUP, "n", OWNER) is None
    assert workloads.mig_configs({}, "n", OWNER, written={}) is None


def test_where_people_chose_partitions_stands_beside_those_that_they_described(
    content: dict[str, str],
) -> None:
    chosen = {
        name: Group(
            name=name,
            key=name,
            use=Use(sharing=Sharing.MIG, mig_config="all-1g.5gb", mig_written=f"{name}.mig"),
        )
        for name in "ab"
    }
    made = workloads.wanted(workloads.read(content), World(node_groups=chosen), "n", OWNER)
    assert made[CONFIG_MAP, "nvidia-mig-custom-configs"]["data"] == {
        "written.json": '{"all-1g.5gb":"a.mig, b.mig"}'
    }
