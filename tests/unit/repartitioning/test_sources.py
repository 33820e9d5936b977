# SPDX-License-Identifier: Apache-2.0
"""Which config a name means, and what is said where none does."""

from __future__ import annotations

import msgspec
import pytest

from gpudeck import errors
from gpudeck.repartitioning import sources
from gpudeck.repartitioning.sources import Source
from gpudeck.vendors import health, records
from gpudeck.vendors.simulated import machine

HOST = machine.partitionable(1)
CARDS = tuple(
    records.CardState(
        site=each.site,
        reading=each.reading,
        driver=HOST.driver,
        health=health.Health(verdict=health.Verdict.HEALTHY, reason="r", message="m", since=0),
    )
    for each in HOST.cards
)


def text(*names: str, count: int = 1) -> str:
    entry = f"[{{devices: all, mig-enabled: true, mig-devices: {{1g.2gb: {count}}}}}]"
    listed = ", ".join(f"{name}: {entry}" for name in names)
    return f"version: v1\nmig-configs: {{{listed}}}\n"


def count(found: sources.Found) -> int:
    return sum(found.config.entries[0].counts.values())


def test_the_first_source_that_has_a_name_counts() -> None:
    named = Source("named", text("all-1g.2gb", "mine", count=1), is_needed=True)
    grouped = Source("grouped", text("mine", "custom", count=2))
    shipped = Source("shipped", text("all-1g.2gb", "all-9g.9gb", count=3))

    def find(name: str) -> int:
        return count(sources.find(name, (named, grouped), (shipped,), CARDS))

    assert [find(each) for each in ("all-1g.2gb", "mine", "custom", "all-9g.9gb")] == [1, 1, 2, 3]
    offered = sources.find("all-1g.2gb", (grouped,), (shipped,), CARDS)
    assert count(offered) == 4


def test_an_unknown_name_is_answered_with_all_that_make_sense_on_the_node() -> None:
    named = Source("named", text("mine"), is_needed=True)
    with pytest.raises(errors.NotFoundError, match=r"allowed: mine, all-disabled.*all-balanced$"):
        sources.find("x", (named,), (Source("shipped", text("shipped")),), CARDS)


def test_what_cards_offer_that_cannot_be_read_is_not_called_unknown() -> None:
    away = tuple(msgspec.structs.replace(each, reading=None) for each in CARDS)
    with pytest.raises(errors.UnavailableError, match="cannot be read now"):
        sources.find("all-1g.2gb", (), (), away)
    with pytest.raises(errors.NotFoundError):
        sources.find("all-9g.9gb", (), (), (*CARDS, *away))
    assert sources.find("all-disabled", (), (), away).config.name == "all-disabled"


def test_a_config_map_that_is_missing_matters_only_where_it_was_named() -> None:
    absent = Source("absent", None)
    assert count(sources.find("all-1g.2gb", (absent,), (absent,), CARDS)) == 4
    with pytest.raises(errors.NotFoundError, match="ConfigMap absent: it is not there"):
        sources.find("all-1g.2gb", (Source("absent", None, is_needed=True),), (), CARDS)


def test_a_wrong_config_map_is_named_with_the_field() -> None:
    wrong = Source("wrong", text("mine", count=-1))
    with pytest.raises(errors.InvalidError) as caught:
        sources.find("all-1g.2gb", (wrong,), (), CARDS)
    assert caught.value.field == 'mig-configs["mine"][0].mig-devices["1g.2gb"]'
    assert caught.value.message.startswith('ConfigMap wrong: mig-configs["mine"][0]')


def test_what_was_mended_is_told() -> None:
    pasted = Source("pasted", text("mine").replace("version: v1", "version:\u00a0v1"))
    found = sources.find("mine", (pasted,), (), CARDS)
    assert found.notes == ("ConfigMap pasted: config.yaml: no-break spaces were read as spaces.",)


def test_a_config_of_a_group_is_called_by_where_people_wrote_it() -> None:
    places = '{"custom-cut-1": "nodeGroups[1].gpu.mig.customConfigs", "all-9g": "g.partedConfig"}'
    grouped = Source("grouped", text("custom-cut-1"), written=places)
    found = sources.find("custom-cut-1", (grouped,), (), CARDS).config
    assert found.path(2, "mig-devices") == "nodeGroups[1].gpu.mig.customConfigs[2].slices"
    with pytest.raises(errors.NotFoundError, match=r"mig\.config \(g\.partedConfig\): there is no"):
        sources.find("all-9g", (grouped,), (), CARDS)
    spoiled = Source("grouped", text("custom-cut-1"), written="[1")
    found = sources.find("custom-cut-1", (spoiled,), (), CARDS).config
    assert found.path(0, "devices") == 'mig-configs["custom-cut-1"][0].devices'
