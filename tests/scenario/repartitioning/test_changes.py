# SPDX-License-Identifier: Apache-2.0
"""A label chooses how a node's cards are partitioned, from the first step to the node's return."""

from __future__ import annotations

from collections import Counter

from tests.scenario.repartitioning.conftest import (
    CONFIG,
    CONFIG_MAP,
    LABELLER,
    NODE,
    PLUGIN,
    STATE,
    World,
)
from tests.scenario.repartitioning.standins import Pod

from gpudeck.api import resources
from gpudeck.mig import configs

ONE_CARD = """\
version: v1
mig-configs:
  one:
  - devices: [0]
    mig-enabled: true
    mig-devices: {1g.2gb: 4}
  - devices: [1]
    mig-enabled: false
"""
CARD = "GPU-00000000-0000-0000-0000-{:012d}"


async def test_a_label_is_followed_and_the_node_returns_to_service(world: World) -> None:
    await world.start()
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.becomes("success")
    assert await world.cards() == [Counter({"1g.2gb": 4})] * 2
    await world.until(lambda: world.condition.get("status") == "True")
    assert world.condition["lastHeartbeatTime"] >= world.condition["lastTransitionTime"]
    world.label(**{CONFIG: "all-disabled"})
    await world.until(lambda: world.labels.get(STATE) == "pending")
    await world.becomes("success")
    assert await world.cards() == [Counter()] * 2
    assert set(world.labels) == {CONFIG, STATE, "gpu.deckhouse.io/active-mode"}


async def test_what_is_done_is_on_the_node_while_it_is_done(world: World) -> None:
    world.label(**{"nvidia.com/gpu.deploy.dcgm": "true", "nvidia.com/gpu.deploy.nvsm": "false"})
    world.cluster.stuck.add("device-plugin")
    await world.start()
    world.label(**{CONFIG: "all-enabled"})
    await world.until(lambda: world.condition.get("reason") == "Pausing")
    assert world.taints == [{"key": "mig-reconfigure", "value": "true", "effect": "NoSchedule"}]
    assert world.labels[STATE] == "pending"
    assert {world.labels[each] for each in (PLUGIN, LABELLER)} == {"paused-for-mig-change"}
    assert world.labels["nvidia.com/gpu.deploy.dcgm"] == "paused-for-mig-change"
    assert world.labels["nvidia.com/gpu.deploy.nvsm"] == "false"
    assert "d8-nvidia-gpu/device-plugin" in world.condition["message"]
    world.cluster.stuck.clear()
    world.kubelet.pods.pop("d8-nvidia-gpu/device-plugin")
    await world.becomes("success")
    assert world.labels["nvidia.com/gpu.deploy.dcgm"] == "true"
    assert world.labels["nvidia.com/gpu.deploy.nvsm"] == "false"
    assert {PLUGIN, LABELLER}.isdisjoint(world.labels)


async def test_only_pods_that_hold_what_changes_are_asked_to_go(world: World) -> None:
    await world.start()
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.becomes("success")
    kept = await world.partition(0, 0)
    gone = await world.partition(1, 0)
    world.configure(ONE_CARD)
    world.kubelet.pods |= {
        "team/stays": Pod([f"{kept}::1"]),
        "team/goes": Pod([gone]),
        "team/idle": Pod(),
    }
    await world.end()
    await world.start(config_map=CONFIG_MAP)
    world.label(**{CONFIG: "one"})
    await world.until(lambda: world.cluster.evicted == ["team/goes"])
    await world.becomes("success")
    assert {"team/stays", "team/idle"} <= set(world.kubelet.pods)
    assert await world.cards() == [Counter({"1g.2gb": 4}), Counter()]


async def test_pods_whose_init_containers_hold_what_changes_are_asked_to_go_too(
    world: World,
) -> None:
    world.kubelet.pods |= {
        "team/prepares": Pod(initial=[CARD.format(0)]),
        "team/idle": Pod(),
        "team/has-ended": Pod(initial=[CARD.format(1)]),
    }
    world.kubelet.keep()
    del world.kubelet.pods["team/has-ended"]
    await world.start()
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.becomes("success")
    assert world.cluster.evicted == ["team/prepares"]
    assert await world.cards() == [Counter({"1g.2gb": 4})] * 2


async def test_a_pod_that_may_not_be_evicted_fails_the_change_and_all_is_given_back(
    world: World,
) -> None:
    world.kubelet.pods["team/guarded"] = Pod([CARD.format(1)])
    world.cluster.protected.add("team/guarded")
    await world.start(drain_seconds=1.0)
    world.label(**{CONFIG: "all-balanced"})
    await world.becomes("failed")
    assert await world.cards() == [Counter()] * 2
    await world.until(lambda: world.condition.get("reason") == "DrainTimeLimit")
    for each in ("team/guarded", "PodDisruptionBudget", "nvidia.com/mig.config.state"):
        assert each in world.condition["message"]
    await world.until(lambda: "MigDrainTimeLimit" in world.events())
    assert {PLUGIN, LABELLER}.isdisjoint(world.labels)
    world.cluster.protected.clear()
    world.label(**{STATE: None})
    await world.becomes("success")
    assert world.cluster.evicted == ["team/guarded"]


async def test_a_workload_that_does_not_end_fails_the_change(world: World) -> None:
    world.cluster.stuck.add("gpu-feature-discovery")
    await world.start(pause_seconds=1.0)
    world.label(**{CONFIG: "all-enabled"})
    await world.becomes("failed")
    await world.until(lambda: world.condition.get("reason") == "PauseTimeLimit")


async def test_an_unknown_config_is_refused_with_those_that_there_are(world: World) -> None:
    await world.start()
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.becomes("success")
    world.label(**{CONFIG: "all-9g.9gb"})
    await world.becomes("failed")
    await world.until(lambda: world.condition.get("reason") == "NoSuchMigConfig")
    message = world.condition["message"]
    assert "label nvidia.com/mig.config: there is no config 'all-9g.9gb'; allowed: " in message
    assert "all-balanced" in message
    assert await world.cards() == [Counter({"1g.2gb": 4})] * 2


async def test_a_wrong_config_is_named_by_its_field_and_read_again_when_it_is_mended(
    world: World,
) -> None:
    world.configure(ONE_CARD.replace("mig-enabled: true", "mig-enabled: 1"))
    await world.start(config_map=CONFIG_MAP)
    world.label(**{CONFIG: "one"})
    await world.becomes("failed")
    await world.until(lambda: world.condition.get("reason") == "InvalidMigConfig")
    said = 'nvidia-mig-config: mig-configs["one"][0].mig-enabled: 1 is not valid'
    assert said in world.condition["message"]
    world.configure(ONE_CARD)
    await world.becomes("success")


async def test_a_config_that_is_mended_while_the_cards_are_read_is_seen(world: World) -> None:
    world.configure(ONE_CARD.replace("mig-enabled: true", "mig-enabled: 1"))
    world.bench.hang(0)
    await world.start(config_map=CONFIG_MAP)
    world.label(**{CONFIG: "one"})
    read = "/api/v1/namespaces/d8-nvidia-gpu/configmaps/nvidia-mig-config"
    await world.until(lambda: read in [each.path for each in world.api.seen])
    world.configure(ONE_CARD)
    world.bench.unhang(0)
    await world.becomes("success")


async def test_a_config_map_that_is_not_there_yet_is_waited_for(world: World) -> None:
    await world.start(config_map=CONFIG_MAP)
    world.label(**{CONFIG: "one"})
    await world.becomes("failed")
    await world.until(lambda: world.condition.get("reason") == "MigConfigMapMissing")
    world.configure(ONE_CARD)
    await world.becomes("success")
    world.configure(ONE_CARD.replace("1g.2gb: 4", "2g.4gb: 1"))
    await world.until(lambda: world.labels[STATE] == "pending")
    await world.becomes("success")
    assert await world.cards() == [Counter({"2g.4gb": 1}), Counter()]


async def test_configs_of_node_groups_and_the_default_are_found(world: World) -> None:
    world.configure(ONE_CARD.replace("one:", "custom-a100-1a2b3c4d:"), "nvidia-mig-custom-configs")
    await world.start(default_config="custom-a100-1a2b3c4d")
    await world.becomes("success")
    assert await world.cards() == [Counter({"1g.2gb": 4}), Counter()]
    world.label(**{CONFIG: "all-disabled"})
    await world.until(lambda: world.labels[STATE] == "pending")
    await world.becomes("success")
    assert await world.cards() == [Counter()] * 2


async def test_a_wrong_profile_of_a_node_group_is_told_by_where_it_was_written(
    world: World,
) -> None:
    custom = ONE_CARD.replace("one:", "custom-cut-1:").replace("1g.2gb", "9g.99gb")
    place = "nodeGroups[1].gpu.mig.customConfigs"
    world.configure(
        custom,
        "nvidia-mig-custom-configs",
        **{configs.WRITTEN_KEY: f'{{"custom-cut-1":"{place}"}}'},
    )
    await world.start()
    world.label(**{CONFIG: "custom-cut-1"})
    await world.becomes("failed")
    said = f'{place}[0].slices["9g.99gb"]: card 0 '
    await world.until(lambda: world.condition.get("message", "").startswith(said))


async def test_a_label_that_is_taken_away_leaves_the_partitions(world: World) -> None:
    await world.start()
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.becomes("success")
    world.label(**{CONFIG: None})
    await world.until(lambda: STATE not in world.labels)
    assert await world.cards() == [Counter({"1g.2gb": 4})] * 2


async def test_in_dra_mode_nothing_is_touched(world: World) -> None:
    world.label(**{"gpu.deckhouse.io/active-mode": "dra", CONFIG: "all-1g.2gb"})
    await world.start()
    await world.until(lambda: world.condition.get("reason") == "StandingBy")
    assert STATE not in world.labels
    assert world.is_in_service()
    assert await world.cards() == [Counter()] * 2


async def test_a_mode_that_changes_meanwhile_gives_the_node_back(world: World) -> None:
    world.kubelet.pods["team/guarded"] = Pod([CARD.format(0)])
    world.cluster.protected.add("team/guarded")
    await world.start()
    world.label(**{CONFIG: "all-enabled"})
    await world.until(lambda: world.condition.get("reason") == "Draining")
    world.label(**{"gpu.deckhouse.io/active-mode": None})
    await world.until(lambda: STATE not in world.labels and world.is_in_service())
    assert await world.cards() == [Counter()] * 2


async def test_nothing_begins_while_the_controller_changes_the_mode(world: World) -> None:
    world.taint({"key": "gpu.deckhouse.io/mode-change", "value": "dra", "effect": "NoSchedule"})
    world.label(**{CONFIG: "all-enabled"})
    await world.start()
    await world.until(lambda: world.condition.get("reason") == "ModeOpen")
    assert STATE not in world.labels
    world.taint()
    await world.becomes("success")


async def test_a_node_that_comes_back_from_dra_is_partitioned_before_its_taint_goes(
    world: World,
) -> None:
    """The controller waits for an offer, and in MIG mode nothing is offered before that."""
    back = {"key": "gpu.deckhouse.io/mode-change", "value": "device-plugin", "effect": "NoSchedule"}
    world.taint(back)
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.start()
    await world.until(lambda: world.labels.get(STATE) == "success")
    assert world.taints == [back]
    assert await world.cards() == [Counter({"1g.2gb": 4})] * 2


async def test_another_label_meanwhile_is_gone_on_with(world: World) -> None:
    world.cluster.stuck.add("device-plugin")
    await world.start()
    world.label(**{CONFIG: "all-enabled"})
    await world.until(lambda: world.condition.get("reason") == "Pausing")
    world.label(**{CONFIG: "all-balanced"})
    await world.until(lambda: "all-balanced" in world.notes["gpu.deckhouse.io/mig-change"])
    world.cluster.stuck.clear()
    world.kubelet.pods.pop("d8-nvidia-gpu/device-plugin")
    await world.becomes("success")
    assert {PLUGIN, LABELLER}.isdisjoint(world.labels)
    assert [each.total() for each in await world.cards()] == [3, 3]


async def test_a_busy_card_fails_and_is_tried_again_when_it_is_asked_for(world: World) -> None:
    world.bench.work(1)
    await world.start()
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.becomes("failed")
    await world.until(lambda: world.condition.get("reason") == "CardInUse")
    assert await world.cards() == [Counter({"1g.2gb": 4}), Counter()]
    world.bench.rest(1)
    world.label(**{STATE: None})
    await world.becomes("success")
    assert await world.cards() == [Counter({"1g.2gb": 4})] * 2


async def test_the_mps_daemon_of_a_card_that_changes_is_ended(world: World) -> None:
    for card in (0, 1):
        world.bench.share_by_mps(card)
    world.configure(ONE_CARD)
    await world.start(config_map=CONFIG_MAP)
    world.label(**{CONFIG: "one"})
    await world.becomes("success")
    assert [world.bench.mps_shares(card) for card in (0, 1)] == [(), ("device-plugin",)]


async def test_partitions_that_go_without_us_are_made_again(world: World) -> None:
    await world.start()
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.becomes("success")
    world.bench.lose_partitions(0)
    await world.until(lambda: world.labels[STATE] == "pending")
    await world.becomes("success")
    assert await world.cards() == [Counter({"1g.2gb": 4})] * 2


async def test_pause_labels_without_a_record_are_given_back(world: World) -> None:
    world.label(**{PLUGIN: "paused-for-mig-change", CONFIG: "all-disabled"})
    await world.start()
    await world.becomes("success")
    assert world.labels[PLUGIN] == "true"


async def test_a_node_that_is_made_anew_is_told_again_what_holds(world: World) -> None:
    await world.start()
    world.label(**{CONFIG: "all-1g.2gb"})
    await world.becomes("success")
    await world.until(lambda: world.condition.get("reason") == "Applied")
    known = world.labels
    world.api.remove(resources.NODE, NODE)
    world.api.put(resources.NODE, {"metadata": {"name": NODE, "uid": "another", "labels": known}})
    await world.until(lambda: world.condition.get("reason") == "Applied")
