# SPDX-License-Identifier: Apache-2.0
"""What a NodeGroup and a group of the chart's values say, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from gpudeck import errors
from gpudeck.api.meta import ObjectMeta
from gpudeck.api.nodegroups import NodeGroup, NodeGroupSpec
from gpudeck.controller.nodegroups import groups, reading
from gpudeck.controller.nodegroups.groups import Sharing, Use, World
from gpudeck.mig.configs import Entry


def node_group(gpu: Any, name: str = "gpus") -> NodeGroup:
    return NodeGroup(metadata=ObjectMeta(name=name), spec=NodeGroupSpec(gpu=gpu))


def use(gpu: Any, name: str = "gpus") -> Use:
    found = reading.node_group(node_group(gpu, name))
    assert found is not None
    assert found.use is not None
    return found.use


def mig(**inner: Any) -> dict[str, Any]:
    return {"sharing": "MIG", "mig": inner}


def customs(*slices: dict[str, Any], index: Any = 0) -> dict[str, Any]:
    return mig(partedConfig="custom", customConfigs=[{"index": index, "slices": list(slices)}])


def test_a_group_that_says_nothing_of_gpus_is_none() -> None:
    assert reading.node_group(node_group(None)) is None
    assert reading.node_group(NodeGroup(metadata=ObjectMeta(name="worker"))) is None


def test_the_documented_defaults_hold() -> None:
    assert use({"sharing": "Exclusive"}) == Use(sharing=Sharing.EXCLUSIVE)
    assert use({"sharing": "TimeSlicing"}).partition_count == 4
    assert use({"sharing": "MIG"}).mig_config == "all-1g.5gb"


def test_what_is_said_counts() -> None:
    sliced = {"sharing": "TimeSlicing", "timeSlicing": {"partitionCount": 10.0}}
    assert use(sliced).partition_count == 10
    assert use(mig(partedConfig="all-balanced")).mig_config == "all-balanced"


@pytest.mark.parametrize("name", ["all-7g.141gb", "all-1g.10gb.me", "all-1g.24gb.gfx", "mine"])
def test_names_that_the_documentation_leaves_out_are_read(name: str) -> None:
    assert use(mig(partedConfig=name)).mig_config == name


def test_a_custom_config_has_a_name_of_its_own_and_the_driver_s_profiles() -> None:
    found = use(
        mig(
            partedConfig="custom",
            customConfigs=[
                {"index": 1, "slices": [{"profile": "7g.141gb"}]},
                {
                    "index": 0,
                    "slices": [
                        {"profile": "1g.10gb.me", "count": 1},
                        {"profile": "1g.10gb", "count": 3},
                    ],
                },
            ],
        )
    )
    assert found.mig_custom == (
        Entry(enabled=True, devices=(1,), counts={"7g.141gb": 1}),
        Entry(enabled=True, devices=(0,), counts={"1g.10gb": 3, "1g.10gb+me": 1}),
    )
    assert found.mig_config.startswith("custom-gpus-")
    assert len(found.mig_config) == len("custom-gpus-") + 8


def test_equal_partitions_have_one_name_and_others_another() -> None:
    first = customs({"profile": "1g.5gb", "count": 2}, {"profile": "3g.20gb"})
    turned = customs({"profile": "3g.20gb", "count": 1}, {"profile": "1g.5gb", "count": 2})
    other = customs({"profile": "1g.5gb", "count": 3})
    assert use(first).mig_config == use(turned).mig_config
    assert use(first).mig_config != use(other).mig_config
    slices = [{"index": each, "slices": [{"profile": f"{each + 1}g.5gb"}]} for each in range(2)]
    one, two = (
        use(mig(partedConfig="custom", customConfigs=each)).mig_config
        for each in (slices, slices[::-1])
    )
    assert one == two


def test_a_group_says_where_its_partitions_were_written() -> None:
    custom = customs({"profile": "1g.5gb"})
    assert use(custom, "cut").mig_written == "NodeGroup cut: spec.gpu.mig.customConfigs"
    assert use({"sharing": "MIG"}).mig_written == "NodeGroup gpus: spec.gpu.mig.partedConfig"
    assert use({"sharing": "Exclusive"}).mig_written == ""
    entries = [{"name": "a", "gpu": {"sharing": "Exclusive"}}, {"name": "b", "gpu": custom}]
    for each in entries:
        each["selector"] = {"matchLabels": {"pool": str(each["name"])}}
    found, _ = reading.world((), json.dumps(entries), World())
    (_, _, second) = found.groups()
    assert second.use is not None
    assert second.use.mig_written == "nodeGroups[1].gpu.mig.customConfigs"


def test_a_long_name_of_a_group_fits_into_labels_and_names() -> None:
    name = "a-group-with-a-name-that-is-longer-than-what-a-label-can-hold-at-all"
    made = reading.node_group(node_group(customs({"profile": "1g.5gb"}), name))
    assert made is not None
    assert made.use is not None
    assert len(made.use.mig_config) <= 63
    assert len(f"nvidia-device-plugin-{made.key}") <= 63
    assert made.key != reading.key_of(name + "-too")


@pytest.mark.parametrize(
    ("gpu", "field"),
    [
        ("all", "spec.gpu"),
        ({}, "spec.gpu.sharing"),
        ({"sharing": "MPS"}, "spec.gpu.sharing"),
        ({"sharing": "Exclusive", "mig": {}}, "spec.gpu.mig"),
        ({"sharing": "TimeSlicing", "timeSlicing": 3}, "spec.gpu.timeSlicing"),
        (
            {"sharing": "TimeSlicing", "timeSlicing": {"partitionCount": 0}},
            "spec.gpu.timeSlicing.partitionCount",
        ),
        (
            {"sharing": "TimeSlicing", "timeSlicing": {"partitionCount": 101}},
            "spec.gpu.timeSlicing.partitionCount",
        ),
        (
            {"sharing": "TimeSlicing", "timeSlicing": {"partitionCount": 2.5}},
            "spec.gpu.timeSlicing.partitionCount",
        ),
        (mig(partedConfig="all 1g"), "spec.gpu.mig.partedConfig"),
        (mig(partedConfig="custom"), "spec.gpu.mig.customConfigs"),
        (
            mig(partedConfig="all-1g.5gb", customConfigs=[{"index": 0, "slices": []}]),
            "spec.gpu.mig.partedConfig",
        ),
        (customs({"profile": "1g.5gb"}, index=-1), "spec.gpu.mig.customConfigs[0].index"),
        (
            mig(
                partedConfig="custom",
                customConfigs=[{"index": 0, "slices": [{"profile": "1g.5gb"}]}] * 2,
            ),
            "spec.gpu.mig.customConfigs[1].index",
        ),
        (customs(), "spec.gpu.mig.customConfigs[0].slices"),
        (customs({"profile": "1g"}), "spec.gpu.mig.customConfigs[0].slices[0].profile"),
        (
            customs({"profile": "1g.5gb", "count": 8}),
            "spec.gpu.mig.customConfigs[0].slices[0].count",
        ),
        (
            customs({"profile": "1g.10gb+me"}, {"profile": "1g.10gb.me"}),
            "spec.gpu.mig.customConfigs[0].slices[1].profile",
        ),
    ],
)
def test_a_wrong_field_is_named(gpu: Any, field: str) -> None:
    with pytest.raises(errors.InvalidError) as refused:
        reading.node_group(node_group(gpu))
    assert refused.value.field == field
    assert refused.value.reason == "NodeGroupInvalid"


@pytest.mark.parametrize("sharing", ["MIG", "some"])
def test_all_that_is_wrong_is_named_at_once(sharing: str) -> None:
    slices = [{"profile": "1g"}, {"profile": "1g", "count": 9}]
    gpu = customs(*slices, index="0") | {"sharing": sharing, "timeSlicing": {"partitionCount": 0}}
    with pytest.raises(errors.InvalidError) as refused:
        reading.node_group(node_group(gpu))
    place = "spec.gpu.mig.customConfigs[0]"
    wrong = [
        f"{place}.index",
        f"{place}.slices[0].profile",
        f"{place}.slices[1].profile",
        f"{place}.slices[1].count",
        "spec.gpu.timeSlicing" if sharing == "MIG" else "spec.gpu.timeSlicing.partitionCount",
    ]
    wrong += ["spec.gpu.sharing"] if sharing != "MIG" else []
    assert refused.value.message.startswith(f"{len(wrong)} fields are wrong: ")
    assert all(f") {each}: " in refused.value.message for each in wrong)


def world(
    *found: NodeGroup, values: Any = (), before: groups.World | None = None
) -> tuple[groups.World, dict[str, str | None]]:
    text = values if isinstance(values, str) else yaml.safe_dump(list(values))
    made, problems = reading.world(found, text, before or groups.World())
    return made, {name: error.field for name, error in problems.items()}


def test_a_wrong_group_costs_itself_alone() -> None:
    made, problems = world(
        node_group({"sharing": "None"}, "wrong"), node_group({"sharing": "MIG"}, "right")
    )
    assert problems == {"wrong": "spec.gpu.sharing"}
    assert made.node_groups["wrong"] is None
    assert [each.name for each in made.groups()] == ["default", "right"]
    assert made.unreadable() == {"wrong"}


def test_a_group_that_becomes_wrong_stays_as_it_was() -> None:
    before, _ = world(node_group({"sharing": "MIG"}))
    made, problems = world(node_group({"sharing": "None"}), before=before)
    assert problems == {"gpus": "spec.gpu.sharing"}
    assert made.node_groups == before.node_groups


def test_two_groups_cannot_have_one_name() -> None:
    entry = {"name": "gpus", "selector": {}, "gpu": {"sharing": "Exclusive"}}
    made, problems = world(node_group({"sharing": "MIG"}), values=[entry])
    assert problems == {"nodeGroups[0]": "nodeGroups[0].name"}
    assert len(made.groups()) == 2


def test_a_node_group_that_comes_later_takes_the_name_from_the_chart_s_group() -> None:
    """Else both would write the same objects, and the NodeGroup's nodes follow the other's."""
    entry = {"name": "gpus", "selector": {}, "gpu": {"sharing": "TimeSlicing"}}
    before, _ = world(values=[entry])
    found = node_group({"sharing": "MIG"})
    made, problems = world(found, values=[entry], before=before)
    assert problems == {"nodeGroups[0]": "nodeGroups[0].name"}
    assert [each.use for each in made.groups()] == [None, use({"sharing": "MIG"})]
    assert made.selected[0].group is None


def test_the_name_of_a_node_group_that_cannot_be_read_is_taken_all_the_same() -> None:
    entry = {"name": "gpus", "selector": {}, "gpu": {"sharing": "TimeSlicing"}}
    made, problems = world(node_group({"sharing": "None"}), values=[entry])
    assert set(problems) == {"gpus", "nodeGroups[0]"}
    assert [each.name for each in made.groups()] == ["default"]


def test_a_group_called_default_is_not_that_of_all_other_nodes() -> None:
    made, problems = world(node_group({"sharing": "MIG"}, "default"))
    assert problems == {}
    assert len({each.key for each in made.groups()}) == 2


def test_groups_of_the_chart_are_read_and_refused_by_their_place() -> None:
    right = {
        "name": "sliced",
        "selector": {"matchLabels": {"pool": "sliced"}},
        "gpu": {"sharing": "TimeSlicing"},
    }
    made, problems = world(
        values=[right, {"name": "No!"}, {**right, "name": "b", "gpu": {"sharing": "x"}}, 5]
    )
    assert problems == {
        "nodeGroups[1]": "nodeGroups[1].name",
        "nodeGroups[2]": "nodeGroups[2].gpu.sharing",
        "nodeGroups[3]": "nodeGroups[3]",
    }
    assert [each.name for each in made.selected] == ["sliced", "b"]
    assert made.selected[1].group is None


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"operator": "In"}, ""),
        ({"operator": "NotIn", "values": []}, ""),
        ({"operator": "Exists", "values": ["a"]}, ""),
        ({"operator": "Equals", "values": ["a"]}, ".operator"),
        ({"operator": "In", "values": ["a"], "value": "b"}, ".value"),
    ],
)
def test_a_selector_that_the_api_server_would_refuse_is_refused(
    wanted: dict[str, Any], field: str
) -> None:
    selector = {"matchExpressions": [{"key": "pool", **wanted}]}
    entry = {"name": "a", "selector": selector, "gpu": {"sharing": "Exclusive"}}
    made, problems = world(values=[entry])
    path = f"nodeGroups[0].selector.matchExpressions[0]{field}"
    assert problems == {"nodeGroups[0]": path}
    assert made.selected == ()


@pytest.mark.parametrize("text", ["a: [", "{}"])
def test_values_that_are_no_list_are_refused(text: str) -> None:
    assert world(values=text)[1] == {"groups.yaml": "groups.yaml"}


def test_values_that_become_no_list_leave_the_chart_s_groups_as_they_were() -> None:
    entry = {"name": "sliced", "selector": {}, "gpu": {"sharing": "TimeSlicing"}}
    before, _ = world(values=[entry])
    made, problems = world(values="a: [", before=before)
    assert problems == {"groups.yaml": "groups.yaml"}
    assert made.selected == before.selected
