# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's cards of the mock library, partitioned by the label as guides print it."""

from __future__ import annotations

from collections import Counter

from tests.scenario.repartitioning.conftest import CONFIG, CONFIG_MAP, STATE, World
from tests.scenario.repartitioning.standins import Pod
from tests.unit.mig import seeds

SEED = "2x2g.10gb-3x1g.5gb"
PRINTED = seeds.PRINTED.partition("config.yaml: |\n")[2]


async def test_the_config_of_the_guide_drains_and_partitions_four_a100(a100: World) -> None:
    a100.configure(PRINTED)
    busy = (await a100.uuids())[2]
    a100.kubelet.pods |= {"team/trains": Pod([busy]), "team/serves": Pod()}
    await a100.start(config_map=CONFIG_MAP)
    a100.label(**{CONFIG: SEED})
    await a100.becomes("success", seconds=60)
    assert await a100.cards() == [Counter({"1g.5gb": 3, "2g.10gb": 2})] * 4
    assert a100.cluster.evicted == ["team/trains"]
    await a100.until(lambda: "no-break spaces were read" in a100.condition.get("message", ""))

    kept = await a100.partition(0, 0)
    a100.kubelet.pods["team/kept"] = Pod([kept])
    a100.label(**{CONFIG: "all-1g.5gb"})
    await a100.until(lambda: a100.labels[STATE] == "pending")
    await a100.becomes("success", seconds=60)
    assert await a100.cards() == [Counter({"1g.5gb": 7})] * 4


async def test_a_card_that_a_program_of_the_host_has_fails_alone(a100: World) -> None:
    a100.configure(PRINTED)
    a100.bench.work(1)
    about = a100.root / "proc/4242"
    about.mkdir()
    (about / "comm").write_text("monitor\n")
    await a100.start(config_map=CONFIG_MAP)
    a100.label(**{CONFIG: SEED})
    await a100.becomes("failed", seconds=60)
    await a100.until(lambda: "end PID 4242 (monitor)." in a100.condition.get("message", ""))
    wanted = Counter({"1g.5gb": 3, "2g.10gb": 2})
    assert await a100.cards() == [wanted, Counter(), wanted, wanted]
    a100.bench.rest(1)
    a100.label(**{STATE: None})
    await a100.becomes("success", seconds=60)
    assert await a100.cards() == [wanted] * 4


async def test_a_card_that_is_lost_in_the_middle_of_a_change_costs_that_card(
    a100: World,
) -> None:
    a100.kubelet.pods["team/guarded"] = Pod((await a100.uuids())[2:3])
    a100.cluster.protected.add("team/guarded")
    await a100.start()
    a100.label(**{CONFIG: "all-1g.5gb"})
    await a100.until(lambda: a100.condition.get("reason") == "Draining")
    a100.bench.lose(1)
    a100.cluster.protected.clear()
    a100.annotate(**{"gpu.deckhouse.io/drain-blocked": None})
    await a100.becomes("failed", seconds=60)
    await a100.until(lambda: "0000:41:00.0: " in a100.condition.get("message", ""))
    a100.bench.find(1)
    wanted = Counter({"1g.5gb": 7})
    assert await a100.cards() == [wanted, Counter(), wanted, wanted]
    a100.label(**{STATE: None})
    await a100.becomes("success", seconds=60)
    assert await a100.cards() == [wanted] * 4


async def test_partitions_that_somebody_removes_by_hand_are_made_again(a100: World) -> None:
    await a100.start()
    a100.label(**{CONFIG: "all-2g.10gb"})
    await a100.becomes("success", seconds=60)
    a100.bench.unpartition(2)
    await a100.until(lambda: a100.labels[STATE] == "pending")
    await a100.becomes("success", seconds=60)
    assert await a100.cards() == [Counter({"2g.10gb": 3})] * 4


async def test_eight_h100_follow_the_config_that_they_offer(h100: World) -> None:
    await h100.start()
    h100.label(**{CONFIG: "all-balanced"})
    await h100.becomes("success", seconds=60)
    assert await h100.cards() == [Counter({"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1})] * 8
    h100.label(**{CONFIG: "all-disabled"})
    await h100.until(lambda: h100.labels[STATE] == "pending")
    await h100.becomes("success", seconds=60)
    assert await h100.cards() == [Counter()] * 8
