# SPDX-License-Identifier: Apache-2.0
"""Labels of the simulated models: whole table, MIG strategies, sharing, cases 04, 11, 13, 29."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.gfd.cards import host, node, split

from gpudeck.gfd import labelling, sharing, table
from gpudeck.gfd.options import Options
from gpudeck.gfd.virtual import HostDriver
from gpudeck.lab import machine
from gpudeck.pluginconfig import model, reading
from gpudeck.vendors import contract, records

NONE, SINGLE, MIXED = model.MigStrategy.NONE, model.MigStrategy.SINGLE, model.MigStrategy.MIXED
SEED = """
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
      - name: nvidia.com/gpu
        replicas: 4
"""


def shared(text: str) -> sharing.Sharing:
    return sharing.of_config(reading.parse(text).sharing)


def time_slices(name: str, replicas: int) -> sharing.Sharing:
    resources = (sharing.Shared(name=name, replicas=replicas),)
    return sharing.Sharing(sharing.Strategy.TIME_SLICING, resources)


def labels(
    found: list[contract.CardReading],
    strategy: model.MigStrategy = NONE,
    config: sharing.Sharing | None = None,
) -> dict[str, str]:
    options = Options(mig_strategy=strategy, sharing=config or sharing.Sharing())
    return labelling.plan(node(found), options).labels


def test_a_plain_host_has_the_whole_table() -> None:
    whole = labelling.plan(node(host("l40s-x4"), machine_type="PowerEdge R760xa\n"), Options())
    assert whole.warnings == ()
    assert whole.labels == {
        "vgpu.present": "false",
        "gpu.machine": "PowerEdge-R760xa",
        "cuda.driver-version.full": "580.95.05",
        "cuda.driver-version.major": "580",
        "cuda.driver-version.minor": "95",
        "cuda.driver-version.revision": "05",
        "cuda.driver.major": "580",
        "cuda.driver.minor": "95",
        "cuda.driver.rev": "05",
        "cuda.runtime-version.full": "13.0",
        "cuda.runtime-version.major": "13",
        "cuda.runtime-version.minor": "0",
        "cuda.runtime.major": "13",
        "cuda.runtime.minor": "0",
        "gpu.mode": "compute",
        "mig.capable": "false",
        "mps.capable": "false",
        "gpu.count": "4",
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "gpu.product": "NVIDIA-L40S",
        "gpu.memory": "46068",
        "gpu.family": "ada-lovelace",
        "gpu.compute.major": "8",
        "gpu.compute.minor": "9",
    }


@pytest.mark.parametrize(
    "name", [each for each in machine.names() if machine.load(each).maker == "nvidia"]
)
@pytest.mark.parametrize("strategy", list(model.MigStrategy))
def test_every_label_stands_in_the_table_and_is_valid(
    name: str, strategy: model.MigStrategy
) -> None:
    found = host(name)
    halves = [
        split(card, *(profile.name for profile in card.profiles)) if card.profiles else card
        for card in found
    ]
    for state in (found, halves):
        for key, value in labels(state, strategy, time_slices("gpu", 4)).items():
            assert table.find(key) is not None, key
            assert len(key) <= 63
            assert len(value) <= 63
            assert not value or (value[0].isalnum() and value[-1].isalnum())
            assert set(value) <= set("-_.") | {each for each in value if each.isalnum()}


def test_the_seeds_time_slices_are_renamed_and_so_not_marked() -> None:
    told = labels(host("a100-40gb-x4"), NONE, shared(SEED))
    assert (told["gpu.count"], told["gpu.replicas"]) == ("4", "4")
    assert told["gpu.sharing-strategy"] == "time-slicing"
    assert told["gpu.product"] == "NVIDIA-A100-SXM4-40GB"


def test_time_slices_under_the_cards_own_name_are_marked() -> None:
    kept = shared(SEED.replace("renameByDefault: true", "renameByDefault: false"))
    assert labels(host("t4-x4"), NONE, kept)["gpu.product"] == "Tesla-T4-SHARED"


def test_mps_is_capable_only_where_no_card_is_split() -> None:
    mps = shared(SEED.replace("timeSlicing", "mps"))
    told = labels(host("a100-40gb-x4"), NONE, mps)
    assert (told["mps.capable"], told["gpu.sharing-strategy"]) == ("true", "mps")
    first, *rest = host("a100-40gb-x4")
    plan = labelling.plan(node([split(first, "7g.40gb"), *rest]), Options(sharing=mps))
    assert plan.labels["mps.capable"] == "false"
    assert any("MPS sharing" in warning for warning in plan.warnings)


def test_the_seeds_mixed_layout_has_labels_of_each_profile() -> None:
    profiles = ["2g.10gb"] * 2 + ["1g.5gb"] * 3
    told = labels([split(card, *profiles) for card in host("a100-40gb-x4")], MIXED)
    assert told["mig.strategy"] == "mixed"
    assert (told["gpu.count"], told["gpu.replicas"]) == ("4", "0")
    assert told["gpu.product"] == "NVIDIA-A100-SXM4-40GB"
    assert {key: value for key, value in told.items() if key.startswith("mig-1g")} == {
        "mig-1g.5gb.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        "mig-1g.5gb.count": "12",
        "mig-1g.5gb.replicas": "1",
        "mig-1g.5gb.sharing-strategy": "none",
        "mig-1g.5gb.memory": "4864",
        "mig-1g.5gb.multiprocessors": "14",
        "mig-1g.5gb.slices.gi": "1",
        "mig-1g.5gb.slices.ci": "1",
        "mig-1g.5gb.engines.copy": "1",
        "mig-1g.5gb.engines.decoder": "0",
        "mig-1g.5gb.engines.encoder": "0",
        "mig-1g.5gb.engines.jpeg": "0",
        "mig-1g.5gb.engines.ofa": "0",
    }
    assert told["mig-2g.10gb.count"] == "8"


def test_equal_mig_devices_are_the_gpus_of_the_strategy_single() -> None:
    told = labels([split(card, *["1g.5gb"] * 7) for card in host("a100-40gb-x4")], SINGLE)
    assert told["mig.strategy"] == "single"
    assert told["gpu.product"] == "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"
    assert (told["gpu.count"], told["gpu.replicas"], told["gpu.memory"]) == ("28", "1", "4864")
    assert (told["gpu.slices.gi"], told["gpu.multiprocessors"]) == ("1", "14")
    assert told["gpu.family"] == "ampere"


def test_partitions_too_can_be_sliced_by_time() -> None:
    halves = [split(card, *["1g.5gb"] * 7) for card in host("a100-40gb-x4")]
    single = labels(halves, SINGLE, time_slices("gpu", 2))
    assert single["gpu.product"] == "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED"
    assert single["gpu.replicas"] == "2"
    mixed = labels(halves, MIXED, time_slices("mig-1g.5gb", 3))
    assert mixed["mig-1g.5gb.product"].endswith("-MIG-1g.5gb-SHARED")
    assert (mixed["mig-1g.5gb.replicas"], mixed["gpu.replicas"]) == ("3", "0")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["1g.10gb"] * 7, []),
        (["3g.40gb"] * 2, ["4g.40gb", "1g.10gb", "1g.10gb", "1g.10gb"]),
        (["1g.10gb"] * 7, None),
        (["1c.3g.40gb"], ["1c.3g.40gb"]),
    ],
)
def test_what_the_strategy_single_cannot_follow_is_said_to_be_invalid(
    first: list[str], second: list[str] | None
) -> None:
    pair = host("a100-80gb-x8")[:2]
    found = [split(pair[0], *first), pair[1] if second is None else split(pair[1], *second)]
    plan = labelling.plan(node(found), Options(mig_strategy=SINGLE))
    assert plan.labels["gpu.product"] == "NVIDIA-A100-SXM4-80GB-MIG-INVALID"
    invalid = [plan.labels[f"gpu.{name}"] for name in ("count", "replicas", "memory")]
    assert invalid == ["0", "0", "0"]
    assert plan.labels["gpu.sharing-strategy"] == ""
    assert any("cannot be followed" in warning for warning in plan.warnings)


def test_case_04_is_no_error_under_the_strategy_mixed() -> None:
    first, second = host("a100-80gb-x8")[:2]
    found = [split(first, *["1g.10gb"] * 7), split(second)]
    plan = labelling.plan(node(found), Options(mig_strategy=MIXED))
    assert plan.labels["mig-1g.10gb.count"] == "7"
    assert plan.warnings == (f"{second.address} has MIG enabled and no MIG device.",)
    told = labels([split(first, *["1g.10gb"] * 7), second], MIXED)
    assert (told["mig-1g.10gb.count"], told["gpu.replicas"]) == ("7", "1")


def test_a_part_of_a_gpu_instance_is_counted_by_no_label() -> None:
    (card, *_) = host("a100-80gb-x8")
    plan = labelling.plan(node([split(card, "1c.3g.40gb")]), Options(mig_strategy=MIXED))
    assert not any(key.startswith("mig-") for key in plan.labels)
    assert any("1c.3g.40gb" in warning for warning in plan.warnings)


def test_a_profile_with_an_attribute_becomes_a_legal_name() -> None:
    (card, *_) = host("a100-80gb-x8")
    told = labels([split(card, "1g.10gb+me")], MIXED)
    assert told["mig-1g.10gb.me.count"] == "1"
    assert told["mig-1g.10gb.me.product"] == "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb.me"
    assert table.find("mig-1g.10gb.me.count") is not None


def test_no_card_in_mig_mode_leaves_the_plain_labels() -> None:
    for strategy in (SINGLE, MIXED):
        told = labels(host("a100-40gb-x4"), strategy)
        assert told.pop("mig.strategy") == strategy.value
        assert told == labels(host("a100-40gb-x4"))


def test_what_differs_between_models_is_left_out() -> None:
    found = host("a100-40gb-x4")[:1] + host("t4-x4")[:2]
    plan = labelling.plan(node(found), Options())
    gone = ("product", "memory", "family", "compute.major", "compute.minor")
    assert not any(f"gpu.{name}" in plan.labels for name in gone)
    assert plan.labels["gpu.count"] == "3"
    assert plan.labels["gpu.model.NVIDIA-A100-SXM4-40GB"] == "1"
    assert plan.labels["gpu.model.Tesla-T4"] == "2"
    assert any("1 NVIDIA A100-SXM4-40GB, 2 Tesla T4" in warning for warning in plan.warnings)


def test_what_two_models_have_alike_stays() -> None:
    found = host("a100-40gb-x4")[:1] + host("a100-80gb-x8")[:1]
    told = labels(found)
    assert (told["gpu.family"], told["gpu.compute.major"]) == ("ampere", "8")
    assert "gpu.memory" not in told


def test_models_of_the_same_partitions_differ_by_their_product_only() -> None:
    found = [split(host(name)[0], "1g.10gb") for name in ("a100-80gb-x8", "h100-x8")]
    told = labels(found, MIXED)
    assert told["mig-1g.10gb.count"] == "2"
    assert "mig-1g.10gb.product" not in told
    single = labels(found, SINGLE)
    assert single["gpu.count"] == "2"
    assert "gpu.product" not in single


def test_memory_that_a_card_does_not_tell_is_not_made_up() -> None:
    told = labels(host("gb10-x1"))  # case-13
    assert "gpu.memory" not in told
    assert told["gpu.product"] == "NVIDIA-GB10"
    assert (told["gpu.family"], told["gpu.compute.minor"]) == ("blackwell", "1")


@pytest.mark.parametrize(
    ("product", "value"),
    [
        ("NVIDIA TITAN X (Pascal)", "NVIDIA-TITAN-X-Pascal"),
        ("  Quadro   P2000 ", "Quadro-P2000"),
        ("Orin (nvgpu)", "Orin-nvgpu"),
    ],
)
def test_odd_names_become_valid_values(product: str, value: str) -> None:
    (card, *_) = host("t4-x4")
    assert labels([msgspec.structs.replace(card, product_name=product)])["gpu.product"] == value


def test_the_end_of_a_long_product_is_what_stays_whole() -> None:
    (card, *_) = host("t4-x4")
    found = [msgspec.structs.replace(card, product_name="NVIDIA " + "Long " * 20)]
    value = labels(found, NONE, time_slices("gpu", 2))["gpu.product"]
    assert len(value) <= 63
    assert value.endswith("-SHARED")


def test_the_machines_type_is_unknown_where_it_cannot_be_read() -> None:
    assert labels(host("t4-x4"))["gpu.machine"] == "unknown"
    odd = node(host("t4-x4"), machine_type="Model 7, rev. B (2U)\n")
    assert labelling.plan(odd, Options()).labels["gpu.machine"] == "Model-7-rev.-B-2U"


def test_the_mode_is_that_of_all_cards() -> None:
    graphics = node(host("t4-x4"), class_code=0x030000)
    assert labelling.plan(graphics, Options()).labels["gpu.mode"] == "graphics"
    both = node(host("t4-x4"))
    states = (
        msgspec.structs.replace(both.inventory.cards[0], site=graphics.inventory.cards[0].site),
        *both.inventory.cards[1:],
    )
    mixed = labelling.Node(msgspec.structs.replace(both.inventory, cards=states))
    assert labelling.plan(mixed, Options()).labels["gpu.mode"] == "unknown"


def test_the_clique_is_told_if_all_cards_have_the_same() -> None:
    first, second = host("h100-x8")[:2]
    one = msgspec.structs.replace(first, clique="c0ffee.1")
    same = msgspec.structs.replace(second, clique="c0ffee.1")
    assert labels([one, same])["gpu.clique"] == "c0ffee.1"
    assert "gpu.clique" not in labels([one, second])


def test_a_virtual_gpu_tells_its_hosts_driver() -> None:
    guest = labelling.Node(
        node(host("t4-x4")).inventory, virtual=(HostDriver("550.90.05", "r550_00"),)
    )
    told = labelling.plan(guest, Options()).labels
    assert told["vgpu.present"] == "true"
    assert told["vgpu.host-driver-version"] == "550.90.05"
    assert told["vgpu.host-driver-branch"] == "r550_00"


def test_without_a_card_that_is_served_there_is_little_to_tell() -> None:
    assert labelling.plan(labelling.Node(records.Inventory()), Options()).labels == {
        "vgpu.present": "false"
    }


@pytest.mark.parametrize(
    ("capability", "family"),
    [
        ("3.5", "kepler"),
        ("6.1", "pascal"),
        ("7.2", "volta"),
        ("7.5", "turing"),
        ("8.6", "ampere"),
        ("8.9", "ada-lovelace"),
        ("9.0", "hopper"),
        ("10.0", "blackwell"),
        ("12.1", "blackwell"),
        ("13.0", "rubin"),
        ("99.0", "undefined"),
        ("", None),
    ],
)
def test_families(capability: str, family: str | None) -> None:
    assert labelling.family(capability) == family


def test_a_card_that_was_never_read_is_not_counted() -> None:
    found = node(host("t4-x4"))
    first = msgspec.structs.replace(found.inventory.cards[0], reading=None)
    states = (first, *found.inventory.cards[1:])
    seen = labelling.Node(msgspec.structs.replace(found.inventory, cards=states))
    assert labelling.plan(seen, Options()).labels["gpu.count"] == "3"


def test_a_card_that_was_given_to_another_driver_is_not_counted() -> None:
    """What was read of it before is still known."""
    found = node(host("t4-x4"))
    first = found.inventory.cards[0]
    given = msgspec.structs.replace(first.site, served=False, driver="vfio-pci")
    states = (msgspec.structs.replace(first, site=given), *found.inventory.cards[1:])
    seen = labelling.Node(msgspec.structs.replace(found.inventory, cards=states))
    assert labelling.plan(seen, Options()).labels["gpu.count"] == "3"


def test_the_page_of_labels_names_each_entry_once() -> None:
    page = table.page(["# Labels"])
    for label in table.TABLE:
        assert page.count(f"| `{label.name}` |") == 1
    assert table.find("gpu.colour") is None
    assert table.find("mig-1g.5gb.me.engines.copy") is not None


MODES = contract.PartitioningMode


def claimed(found: list[contract.CardReading], strategy: model.MigStrategy) -> dict[str, str]:
    told = msgspec.structs.replace(node(found), by_claims=True)
    return labelling.plan(told, Options(mig_strategy=strategy)).labels


@pytest.mark.parametrize("strategy", list(model.MigStrategy))
def test_partitions_that_claims_make_change_no_label(strategy: model.MigStrategy) -> None:
    idle = [msgspec.structs.replace(each, dynamic=True) for each in host("h100-x8")]
    busy = [split(each, "1g.10gb", "3g.40gb") for each in idle]
    told = claimed(idle, strategy)
    assert claimed(busy, strategy) == claimed([*busy[:3], *idle[3:]], strategy) == told
    assert (told["gpu.count"], told["gpu.replicas"]) == ("8", "1")
    assert told["gpu.product"] == "NVIDIA-H100-80GB-HBM3"


def test_a_mig_mode_that_claims_cannot_change_counts_in_dra_mode_too() -> None:
    cards = host("a100-40gb-x4")
    enabled = [split(each, "1g.5gb") for each in cards]
    made = [split(each, "1g.5gb", "2g.10gb") for each in cards]
    assert claimed(enabled, MIXED) == claimed(made, MIXED)
    assert claimed(enabled, MIXED)["gpu.replicas"] == "0"
    assert claimed(cards, MIXED)["gpu.replicas"] == "1"
    assert not any(name.startswith("mig-") for name in claimed(enabled, MIXED))
