# SPDX-License-Identifier: Apache-2.0
"""The configs that are there by themselves: for every model, and from what cards say."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.mig import cards

from gpudeck.lab import machine
from gpudeck.mig import choosing, configs, defaults, generating, planning
from gpudeck.vendors import contract

ALL = defaults.all_models()


def counts_for(device: int) -> dict[str, dict[str, int]]:
    """What each config says for cards of one model, by PCI device id."""
    found = {}
    for name, config in ALL.items():
        entries = [
            entry
            for entry in config
            if not entry.filters
            or any(each.accepts(device << 16 | 0x10DE, None) for each in entry.filters)
        ]
        assert len(entries) <= 1, f"{name} wants cards {device:04X} in two ways"
        if entries:
            found[name] = dict(entries[0].counts)
    return found


def test_the_file_is_read_again_as_it_was_meant() -> None:
    assert configs.read(configs.write(ALL)).by_name == ALL


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (0x20B0, {"all-1g.5gb": {"1g.5gb": 7}, "all-1g.10gb": {"1g.10gb": 4},
                  "all-7g.40gb": {"7g.40gb": 1}, "all-1g.5gb.me": {"1g.5gb+me": 1},
                  "all-balanced": {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}}),
        (0x2330, {"all-1g.10gb": {"1g.10gb": 7}, "all-1g.20gb": {"1g.20gb": 4},
                  "all-2g.20gb": {"2g.20gb": 3}, "all-3g.40gb": {"3g.40gb": 2}}),
        (0x20B7, {"all-1g.6gb": {"1g.6gb": 4}, "all-4g.24gb": {"4g.24gb": 1},
                  "all-balanced": {"1g.6gb": 2, "2g.12gb": 1}}),
        (0x2321, {"all-1g.12gb": {"1g.12gb": 7}, "all-1g.24gb": {"1g.24gb": 4},
                  "all-3g.47gb": {"3g.47gb": 2}}),
        (0x2342, {"all-1g.24gb": {"1g.24gb": 4}, "all-7g.96gb": {"7g.96gb": 1}}),
        (0x2335, {"all-1g.18gb": {"1g.18gb": 7}, "all-7g.141gb": {"7g.141gb": 1}}),
        (0x2348, {"all-1g.36gb": {"1g.36gb": 4}, "all-7g.144gb": {"7g.144gb": 1}}),
        (0x2901, {"all-1g.23gb": {"1g.23gb": 7}, "all-1g.45gb": {"1g.45gb": 4},
                  "all-balanced": {"1g.23gb": 2, "2g.45gb": 1, "3g.90gb": 1}}),
        (0x2941, {"all-1g.47gb": {"1g.47gb": 4}, "all-7g.186gb": {"7g.186gb": 1},
                  "all-7g.189gb": {"7g.189gb": 1}, "all-3g.95gb": {"3g.95gb": 2}}),
        (0x3182, {"all-7g.269gb": {"7g.269gb": 1}, "all-1g.67gb": {"1g.67gb": 4}}),
        (0x31C2, {"all-7g.278gb": {"7g.278gb": 1}, "all-2g.70gb": {"2g.70gb": 3}}),
        (0x2BB5, {"all-1g.24gb": {"1g.24gb": 4}, "all-1g.24gb.me.all": {"1g.24gb+me.all": 1},
                  "all-1g.24gb-me": {"1g.24gb-me": 4}, "all-2g.48gb.gfx": {"2g.48gb+gfx": 2},
                  "all-balanced": {"1g.24gb": 2, "2g.48gb": 1}}),
    ],
)  # fmt: skip
def test_a_model_has_its_configs(device: int, expected: dict[str, dict[str, int]]) -> None:
    found = counts_for(device)
    assert {name: found.get(name) for name in expected} == expected


def test_every_model_can_be_balanced() -> None:
    for family in defaults.FAMILIES:
        for device in family.devices:
            assert counts_for(device)[defaults.BALANCED] == dict(family.balanced)


@pytest.mark.parametrize("name", cards.IDS)
def test_what_a_card_says_gives_the_configs_of_its_model(name: str) -> None:
    node = cards.node(name, 2, mode=contract.PartitioningMode.DISABLED)
    generated = generating.generate(node)
    of_model = counts_for(cards.IDS[name] >> 16)
    for config in generated:
        assert dict(generated[config][0].counts) == of_model[config]
        assert generated[config][0].filters == ()
    family = next(each for each in defaults.FAMILIES if cards.IDS[name] >> 16 in each.devices)
    wanted = {"all-disabled", "all-enabled", "all-balanced", *map(defaults.name_of, family.full)}
    assert wanted == set(generated)


@pytest.mark.parametrize("name", cards.IDS)
def test_every_default_config_of_a_model_can_be_planned_on_it(name: str) -> None:
    node = cards.node(name, 1)
    for config in generating.generate(node):
        plan = planning.plan(choosing.Named(config, ALL[config]), node)
        assert len(plan.cards) == 1


def test_the_machines_are_of_these_models() -> None:
    for name, pci_id in cards.IDS.items():
        host = machine.load(name)
        pci = host.model_of(host.cards[0]).pci
        assert (pci.device << 16 | pci.vendor) == pci_id


def test_a_node_of_two_models_has_filters() -> None:
    node = [*cards.node("a30-x2", 1), *cards.node("a100-40gb-x4", 3)[1:]]
    generated = generating.generate(node)
    a30, a100 = (configs.Filter(cards.IDS[name]) for name in ("a30-x2", "a100-40gb-x4"))
    assert generated["all-1g.6gb"] == (
        configs.Entry(enabled=True, counts={"1g.6gb": 4}, filters=(a30,)),
    )
    assert [entry.filters for entry in generated["all-balanced"]] == [(a30,), (a100,)]
    plan = planning.plan(choosing.Named("all-balanced", generated["all-balanced"]), node)
    assert [len(card.made) for card in plan.cards] == [3, 4, 4]


def test_cards_of_one_id_that_differ_are_told_apart_by_number() -> None:
    node = cards.node("a100-40gb-x4", 3)
    reading = node[1].reading
    assert reading is not None
    fewer = msgspec.structs.replace(reading, profiles=reading.profiles[:3])
    node[1] = msgspec.structs.replace(node[1], reading=fewer)
    entries = generating.generate(node)["all-7g.40gb"]
    assert [entry.devices for entry in entries] == [(0, 2), (1,)]


def test_cards_without_mig_those_given_away_and_those_that_cannot_be_read_offer_nothing() -> None:
    given = cards.state(cards.reading(index=2), served=False, driver="vfio-pci")
    node = [cards.state(cards.no_mig()), cards.state(None, index=1), given]
    assert list(generating.generate(node)) == ["all-disabled", "all-enabled"]
