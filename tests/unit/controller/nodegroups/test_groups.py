# SPDX-License-Identifier: Apache-2.0
"""Which group serves a node, and which labels it gets."""

from __future__ import annotations

from gpudeck.api.labelselectors import Requirement
from gpudeck.controller.nodegroups import groups
from gpudeck.controller.nodegroups.groups import Group, Selected, Sharing, Use, World

VENDOR, GROUP, MODE = "gpu.deckhouse.io/vendor", "node.deckhouse.io/group", "pool"
CARDS = {VENDOR: "nvidia"}
MIG = Group(name="m", key="m", use=Use(sharing=Sharing.MIG, mig_config="all-1g.5gb"))
SLICED = Group(name="s", key="s", use=Use(sharing=Sharing.TIME_SLICING))
WORLD = World(
    node_groups={"m": MIG, "broken": None},
    selected=(
        Selected("s", (Requirement(MODE, "In", ("s",)),), SLICED),
        Selected("x", (Requirement(MODE, "In", ("x",)),), None),
    ),
)


def of(**known: str) -> groups.Membership:
    return groups.of_node(
        {**CARDS, **{GROUP if k == "group" else k: v for k, v in known.items()}}, WORLD
    )


def test_a_node_without_cards_is_in_no_group() -> None:
    assert groups.of_node({GROUP: "m"}, WORLD).group is None


def test_the_node_group_comes_first_then_the_selectors_then_the_default() -> None:
    assert of(group="m", pool="s").group is MIG
    assert of(group="worker", pool="s").group is SLICED
    assert of(group="worker").group is groups.DEFAULT_GROUP
    assert of().group is groups.DEFAULT_GROUP


def test_a_node_of_a_group_that_cannot_be_read_is_left_as_it_is() -> None:
    assert of(group="broken", pool="s").is_unreadable
    assert of(pool="x").is_unreadable


def test_a_group_labels_its_nodes() -> None:
    assert groups.wanted_labels(MIG, CARDS) == {
        "gpu.deckhouse.io/node-group": "m",
        "node.deckhouse.io/gpu": "",
        "node.deckhouse.io/device-gpu.config": "MIG",
        "nvidia.com/mig.config": "all-1g.5gb",
    }
    assert groups.wanted_labels(groups.DEFAULT_GROUP, CARDS) == {
        "gpu.deckhouse.io/node-group": "default"
    }
    assert groups.wanted_labels(None, CARDS) == {}


def test_mig_is_ended_in_a_group_without_it_and_the_administrators_in_the_default_one() -> None:
    partitioned = {**CARDS, "nvidia.com/mig.config": "all-1g.5gb"}
    wanted = groups.wanted_labels(SLICED, partitioned)
    assert wanted["nvidia.com/mig.config"] == "all-disabled"
    assert "nvidia.com/mig.config" not in groups.wanted_labels(groups.DEFAULT_GROUP, partitioned)


def test_a_node_that_leaves_all_groups_gets_whole_cards_again() -> None:
    """The label was its group's: nobody else would ever take the partitions away."""
    left = {**CARDS, **groups.wanted_labels(MIG, CARDS)}
    wanted = groups.wanted_labels(groups.DEFAULT_GROUP, left)
    assert wanted == {
        "gpu.deckhouse.io/node-group": "default",
        "nvidia.com/mig.config": "all-disabled",
    }
    after = {**CARDS, **wanted}
    assert groups.is_labelled(after, groups.wanted_labels(groups.DEFAULT_GROUP, after))
    chosen = {**after, "nvidia.com/mig.config": "all-2g.10gb"}
    assert groups.is_labelled(chosen, groups.wanted_labels(groups.DEFAULT_GROUP, chosen))


def test_a_node_that_leaves_all_groups_gets_the_config_of_nodes_without_a_label() -> None:
    left = {**CARDS, **groups.wanted_labels(MIG, CARDS)}
    wanted = groups.wanted_labels(groups.DEFAULT_GROUP, left, default_mig_config="all-balanced")
    assert wanted == {"gpu.deckhouse.io/node-group": "default"}


def test_a_label_that_somebody_else_left_is_no_group_that_a_node_comes_from() -> None:
    """Deckhouse's own code never takes it away (deckhouse/deckhouse#17678)."""
    left = {
        **CARDS,
        "node.deckhouse.io/device-gpu.config": "MIG",
        "nvidia.com/mig.config": "all-2g.10gb",
    }
    wanted = groups.wanted_labels(groups.DEFAULT_GROUP, left)
    assert wanted == {"gpu.deckhouse.io/node-group": "default"}
    assert groups.is_labelled({**left, **wanted}, groups.wanted_labels(groups.DEFAULT_GROUP, left))


def test_every_move_between_groups_is_seen_in_the_labels() -> None:
    worlds = [None, groups.DEFAULT_GROUP, MIG, SLICED]
    for before in worlds:
        for after in worlds:
            node = {**CARDS, **groups.wanted_labels(before, CARDS)}
            wanted = groups.wanted_labels(after, node)
            assert groups.is_labelled(node, wanted) is (before is after)


def test_labels_of_cards_stay_through_a_pause_and_go_when_discovery_is_off() -> None:
    label = "nvidia.com/gpu.deploy.gpu-feature-discovery"
    assert groups.is_discovered({label: "paused-for-mig-change"}, MIG)
    assert not groups.is_discovered({label: "false"}, MIG)
    assert not groups.is_discovered({}, None)
