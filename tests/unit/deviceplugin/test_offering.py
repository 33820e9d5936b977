# SPDX-License-Identifier: Apache-2.0
"""Cards and a config give the resources of a node."""

import msgspec
import pytest
from tests.unit.deviceplugin.nodes import ENABLED, card, counts, inventory, offer

from gpudeck.deviceplugin import offering
from gpudeck.pluginconfig import model

SLICE_4 = """
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - name: nvidia.com/gpu
      replicas: 4
"""
SHARING = "sharing: {timeSlicing: {resources: [%s]}}"


def test_every_card_is_a_device() -> None:
    assert counts(offer("", *map(card, range(4)))) == {"nvidia.com/gpu": 4}


def test_a_card_in_four_with_its_own_name_leaves_none_whole() -> None:
    found = offer(SLICE_4, *map(card, range(4)))
    assert counts(found) == {"nvidia.com/gpu": 0, "nvidia.com/gpu.shared": 16}
    shared = found.resource("nvidia.com/gpu.shared")
    assert shared is not None
    assert shared.single_only
    assert shared.devices[5].id == "GPU-1::1"


def test_without_a_new_name_the_replicas_are_counted_as_cards() -> None:
    found = offer(SHARING % "{name: gpu, replicas: 6}", card(0))
    assert counts(found) == {"nvidia.com/gpu": 6}


@pytest.mark.parametrize(
    ("devices", "shared"),
    [("2", ["GPU-0", "GPU-1"]), ("[1, GPU-3]", ["GPU-1", "GPU-3"]), ("all", None)],
)
def test_only_the_devices_that_are_named_are_shared(devices: str, shared: list[str] | None) -> None:
    text = SHARING % f"{{name: gpu, replicas: 2, rename: half, devices: {devices}}}"
    found = offer(text, *map(card, range(4)))
    half = found.resource("nvidia.com/half")
    assert half is not None
    names = list(dict.fromkeys(each.unit.id for each in half.devices))
    assert names == (shared or [f"GPU-{number}" for number in range(4)])
    assert counts(found)["nvidia.com/gpu"] == 4 - len(names)


def test_a_device_that_is_not_there_is_said_and_the_rest_is_shared() -> None:
    found = offer(SHARING % "{name: gpu, replicas: 2, rename: half, devices: [0, 9]}", card(0))
    assert counts(found) == {"nvidia.com/gpu": 0, "nvidia.com/half": 2}
    assert [each.reason for each in found.problems] == ["SharedDeviceMissing"]
    assert found.problems[0].message == (
        "sharing.timeSlicing.resources: nvidia.com/gpu has no device 9 that is still to be shared."
    )


def test_an_entry_that_finds_nothing_left_to_share_is_said() -> None:
    found = offer(SHARING % "{name: gpu, replicas: 2}, {name: gpu, replicas: 4}", card(0))
    assert counts(found) == {"nvidia.com/gpu": 2}
    assert [(each.reason, each.message) for each in found.problems] == [
        (
            "SharedDeviceMissing",
            "sharing.timeSlicing.resources: nvidia.com/gpu has no device that is still to be "
            "shared.",
        )
    ]


def test_more_devices_than_there_are_cannot_be_shared() -> None:
    found = offer(SHARING % "{name: gpu, replicas: 2, devices: 3}", card(0))
    assert [each.message for each in found.problems] == [
        "sharing.timeSlicing.resources: 3 devices of nvidia.com/gpu are to be shared, and it has 1."
    ]


def test_sharing_of_a_resource_that_the_node_lacks_is_said() -> None:
    found = offer(SHARING % "{name: mig-1g.5gb, replicas: 2}", card(0))
    assert counts(found) == {"nvidia.com/gpu": 1}
    assert [each.reason for each in found.problems] == ["SharedResourceMissing"]


def test_one_config_may_be_for_nodes_of_several_layouts() -> None:
    """As NVIDIA's documents have it: an entry for whole cards and one for each profile."""
    entries = ["gpu", "mig-1g.5gb", "mig-1g.5gb.me.all", "mig-1g.5gb-me", "mig-3g.20"]
    found = offer(
        SHARING % ", ".join(f"{{name: {each}, replicas: 2}}" for each in entries), card(0)
    )
    assert counts(found) == {"nvidia.com/gpu": 2}
    (problem,) = found.problems
    assert (problem.reason, "'nvidia.com/mig-3g.20'" in problem.message) == (
        "SharedResourceMissing",
        True,
    )


MIXED = "flags: {migStrategy: mixed}"
SINGLE = "flags: {migStrategy: single}"
SEVEN = ("1g.10gb",) * 7
STATE_A = (card(0, profiles=SEVEN), card(1, mode=ENABLED))
STATE_B = (
    card(0, profiles=("3g.40gb", "3g.40gb")),
    card(1, profiles=("4g.40gb", "1g.10gb", "1g.10gb", "1g.10gb")),
)
STATE_C = (card(0, profiles=SEVEN), card(1))


@pytest.mark.parametrize(
    ("cards", "expected"),
    [
        (STATE_A, {"nvidia.com/mig-1g.10gb": 7}),
        (
            STATE_B,
            {"nvidia.com/mig-3g.40gb": 2, "nvidia.com/mig-4g.40gb": 1, "nvidia.com/mig-1g.10gb": 3},
        ),
        (STATE_C, {"nvidia.com/mig-1g.10gb": 7, "nvidia.com/gpu": 1}),
    ],
)
def test_mixed_names_each_profile(cards: tuple[object, ...], expected: dict[str, int]) -> None:
    assert counts(offer(MIXED, *cards)) == expected  # type: ignore[arg-type]


def test_a_card_without_partitions_is_said_and_the_others_are_offered() -> None:
    (problem,) = offer(MIXED, *STATE_A).problems
    assert problem.reason == "CardNotPartitioned"
    assert "the label nvidia.com/mig.config of the Node makes some" in problem.message


@pytest.mark.parametrize("cards", [STATE_A, STATE_B, STATE_C])
def test_single_offers_nothing_on_a_node_that_is_not_uniform(cards: tuple[object, ...]) -> None:
    found = offer(SINGLE, *cards)  # type: ignore[arg-type]
    assert counts(found) == {"nvidia.com/gpu": 0}
    assert "MigNotUniform" in [each.reason for each in found.problems]


def test_single_counts_partitions_as_cards() -> None:
    found = offer(SINGLE, *(card(number, profiles=("1g.5gb",) * 7) for number in range(4)))
    assert counts(found) == {"nvidia.com/gpu": 28}


def test_single_without_any_partitioned_card_offers_the_cards() -> None:
    assert counts(offer(SINGLE, card(0), card(1))) == {"nvidia.com/gpu": 2}


def test_none_offers_partitioned_cards_whole() -> None:
    assert counts(offer("", *STATE_C)) == {"nvidia.com/gpu": 2}


def test_partitions_can_be_shared() -> None:
    text = f"{MIXED}\n{SHARING % '{name: mig-1g.5gb, replicas: 2}'}".replace(
        "timeSlicing: {", "timeSlicing: {renameByDefault: true, "
    )
    found = offer(text, card(0, profiles=("1g.5gb", "1g.5gb")))
    assert counts(found) == {"nvidia.com/mig-1g.5gb": 0, "nvidia.com/mig-1g.5gb.shared": 4}


def test_a_profile_with_a_plus_gets_a_legal_name() -> None:
    assert counts(offer(MIXED, card(0, profiles=("1g.5gb+me",)))) == {"nvidia.com/mig-1g.5gb.me": 1}


def test_a_part_of_a_gpu_instance_is_left_out_and_said() -> None:
    found = offer(MIXED, card(0, profiles=("1c.3g.40gb", "1g.10gb")))
    assert counts(found) == {"nvidia.com/mig-1g.10gb": 1}
    assert [each.reason for each in found.problems] == ["PartitionNotSupported"]


def test_patterns_name_the_resources() -> None:
    text = "flags: {migStrategy: mixed}\nresources: {gpus: [{pattern: '*A100*', name: a100}], "
    text += "mig: [{pattern: '1g.*', name: small}]}"
    found = offer(text, card(0), card(1, profiles=("1g.5gb", "2g.10gb")))
    assert counts(found) == {
        "nvidia.com/a100": 1,
        "nvidia.com/small": 1,
        "nvidia.com/mig-2g.10gb": 1,
    }


def test_a_sick_card_is_unhealthy_alone_and_stays_in_the_list() -> None:
    found = offer("", card(0), card(1, fault="It fell off the bus."))
    gpu = found.resource("nvidia.com/gpu")
    assert gpu is not None
    assert [each.unit.fault for each in gpu.devices] == ["", "It fell off the bus."]


def test_cards_that_cannot_be_read_for_now_are_not_lost() -> None:
    before = inventory(card(0), card(1))
    seen = offering.remember(offering.Seen(), before)
    away = tuple(msgspec.structs.replace(each, reading=None) for each in before.cards)
    driver = msgspec.structs.replace(before.driver, ready=False, message="It is being updated.")
    gone = inventory(*(msgspec.structs.replace(each, driver=driver) for each in away))
    found = offering.offer(gone, offering.remember(seen, gone), model.Config())
    gpu = found.resource("nvidia.com/gpu")
    assert gpu is not None
    assert [each.unit.fault for each in gpu.devices] == ["It is being updated."] * 2


def test_a_card_that_left_the_bus_is_forgotten() -> None:
    seen = offering.remember(offering.Seen(), inventory(card(0), card(1)))
    left = inventory(card(1))
    assert [each for each, _ in offering.remember(seen, left).readings] == ["0000:02:00.0"]


def test_a_fault_of_one_partition_costs_one_partition() -> None:
    sick = card(0, profiles=("1g.5gb",) * 3, fault="Xid 79.", confined_to=("2/",))
    (resource,) = offer(MIXED, sick).resources
    assert [each.unit.fault for each in resource.devices] == ["", "Xid 79.", ""]


def test_a_fault_of_a_shared_card_is_one_of_all_its_replicas() -> None:
    found = offer(SLICE_4, card(0, fault="Xid 79."), card(1)).resource("nvidia.com/gpu.shared")
    assert found is not None
    assert [each.id for each in found.devices if each.unit.fault] == [
        f"GPU-0::{number}" for number in range(4)
    ]


def test_partitions_are_named_by_the_drivers_numbers_and_not_by_their_place() -> None:
    """Who is told `0:1` asks the driver for it, which numbers by instance (NVML 13)."""
    split = card(0, profiles=("1g.5gb", "1g.5gb", "3g.20gb"))
    assert split.reading is not None
    numbers = ("MIG-0-2", "", "MIG-0-0", "MIG-0-1")
    reading = msgspec.structs.replace(split.reading, partition_numbers=numbers)
    split = msgspec.structs.replace(split, reading=reading)
    entry = 'name: mig-1g.5gb, replicas: 2, devices: ["0:2"]'
    found = offer(f"flags: {{migStrategy: mixed}}\n{SHARING % f'{{{entry}}}'}", split)
    units = {each.unit.id: each.unit.index for one in found.resources for each in one.devices}
    assert units == {"MIG-0-0": "0:2", "MIG-0-1": "0:3", "MIG-0-2": "0:0"}
    small = found.resource("nvidia.com/mig-1g.5gb")
    assert small is not None
    assert [each.id for each in small.devices] == ["MIG-0-1", "MIG-0-0::0", "MIG-0-0::1"]


@pytest.mark.parametrize(
    ("limit", "memory", "words"),
    [
        ("equal", 40 << 30, ""),
        ("40Gi", 40 << 30, ""),
        ("41Gi", 40 << 30, "of nvidia.com/gpu is more than the card has; allowed: at most 40Gi"),
        ("equal", None, "the card does not tell its memory"),
        ("8Gi", None, ""),
    ],
)
def test_a_limit_that_a_card_cannot_keep_is_said(
    limit: str, memory: int | None, words: str
) -> None:
    unit = card(0)
    assert unit.reading is not None
    reading = msgspec.structs.replace(unit.reading, memory_bytes=memory)
    found = offer(
        SHARING % f"{{name: gpu, replicas: 2, memoryLimit: {limit}}}",
        msgspec.structs.replace(unit, reading=reading),
    )
    assert counts(found) == {"nvidia.com/gpu": 2}
    assert [each.reason for each in found.problems] == ["MemoryLimitNotKept"] * bool(words)
    assert words in "".join(each.message for each in found.problems)


def test_a_limit_of_partitions_is_said_to_do_nothing_once_a_card() -> None:
    text = SHARING % "{name: mig-1g.5gb, replicas: 2, memoryLimit: 1Gi}"
    split = card(0, profiles=("1g.5gb", "1g.5gb"))
    found = offer(f"flags: {{migStrategy: mixed}}\n{text}", split)
    assert [each.reason for each in found.problems] == ["MemoryLimitNotKept"]
    assert "within a partition" in found.problems[0].message
