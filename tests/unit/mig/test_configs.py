# SPDX-License-Identifier: Apache-2.0
"""The format of nvidia-mig-parted: what is read, what is refused, and by which field."""

from __future__ import annotations

import json

import pytest
import yaml
from tests.unit.mig import seeds

from gpudeck.errors import InvalidError, NotFoundError
from gpudeck.mig import configs


def read(entry: str) -> configs.Entry:
    """The one entry of the config `x`, given in YAML's flow style."""
    found = configs.read(f"version: v1\nmig-configs:\n  x:\n  - {entry}\n")
    return found.by_name["x"][0]


def test_the_config_map_is_read_as_it_was_meant_and_says_so() -> None:
    found = configs.read(seeds.PRINTED, "file.yaml")
    assert found.by_name == {
        "disabled": (configs.Entry(enabled=False),),
        "2x2g.10gb-3x1g.5gb": (configs.Entry(enabled=True, counts={"1g.5gb": 3, "2g.10gb": 2}),),
    }
    assert found.notes == (
        "file.yaml: no-break spaces were read as spaces.",
        "file.yaml: line 5 was read as indented like the one above it.",
    )


def test_the_content_of_the_config_map_alone_is_read_too() -> None:
    lines = seeds.PRINTED.splitlines()[7:]
    found = configs.read("\n".join(line.removeprefix("\u00a0 ") for line in lines))
    assert list(found.by_name) == ["disabled", "2x2g.10gb-3x1g.5gb"]


def test_a_filter_is_read_as_text_as_number_and_as_list() -> None:
    a100 = configs.Filter(0x20B010DE)
    assert read("{device-filter: '0x20B010DE', devices: all, mig-enabled: false}").filters == (
        a100,
    )
    assert read("{device-filter: 0x20b010de, devices: all, mig-enabled: false}").filters == (a100,)
    found = read(
        "{device-filter: ['0x20B010DE', '0x20B210DE:0x147F10DE'], devices: all, mig-enabled: false}"
    )
    assert found.filters == (a100, configs.Filter(0x20B210DE, 0x147F10DE))
    assert read("{device-filter: '', devices: all, mig-enabled: false}").filters == ()


def test_a_filter_with_a_subsystem_is_for_that_board_alone() -> None:
    board = configs.Filter(0x20B210DE, 0x147F10DE)
    assert board.accepts(0x20B210DE, 0x147F10DE)
    assert not board.accepts(0x20B210DE, 0x123410DE)
    assert not board.accepts(0x20B210DE, None)
    assert configs.Filter(0x20B210DE).accepts(0x20B210DE, None)


def test_mig_may_be_on_without_partitions_and_a_count_may_be_none() -> None:
    assert read("{devices: all, mig-enabled: true, mig-devices: {}}").counts == {}
    found = read("{devices: [1, 0, 1], mig-enabled: true, mig-devices: {1g.5gb: 0, 2g.10gb: 1}}")
    assert (found.devices, found.counts) == ((1, 0), {"2g.10gb": 1})


@pytest.mark.parametrize(
    "profile",
    ["1g.5gb", "1g.10gb+me", "7g.141gb", "1g.24gb+me.all", "1g.24gb-me", "2g.48gb+gfx",
     "1g.5gb.me", "1c.3g.20gb"],
)  # fmt: skip
def test_a_profile_has_any_name_that_drivers_give(profile: str) -> None:
    entry = read(f"{{devices: all, mig-enabled: true, mig-devices: {{'{profile}': 1}}}}")
    assert entry.counts == {profile: 1}


X = 'mig-configs["x"][0]'
ON = "devices: all, mig-enabled: true"


@pytest.mark.parametrize(
    ("entry", "field", "said"),
    [
        ("{}", X, "{} is not valid"),
        ("text", X, "'text' is not valid"),
        ("{mig-enabled: false}", f"{X}.devices", "is missing; allowed: all, or a list"),
        ("{devices: some, mig-enabled: false}", f"{X}.devices", "'some' is not valid"),
        ("{devices: [], mig-enabled: false}", f"{X}.devices", "[] is not valid"),
        ("{devices: [0, -1], mig-enabled: false}", f"{X}.devices[1]", "-1 is not valid"),
        ("{devices: [true], mig-enabled: false}", f"{X}.devices[0]", "True is not valid"),
        ("{devices: all}", f"{X}.mig-enabled", "is missing; allowed: true or false"),
        ("{devices: all, mig-enabled: 'on'}", f"{X}.mig-enabled", "'on' is not valid"),
        ("{devices: all, mig-enabled: false, mig-device: {}}", f"{X}.mig-device", "allowed: the"),
        ("{devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}}", f"{X}.mig-devices",
         "allowed: nothing while mig-enabled is false"),
        (f"{{{ON}}}", f"{X}.mig-devices", "is missing; allowed: a mapping"),
        (f"{{{ON}, mig-devices: [1g.5gb]}}", f"{X}.mig-devices", "allowed: a mapping"),
        (f"{{{ON}, mig-devices: {{1g.5gb: 0}}}}", f"{X}.mig-devices", "at least one count above 0"),
        (f"{{{ON}, mig-devices: {{1g.5gb: -1}}}}", f'{X}.mig-devices["1g.5gb"]', "-1 is not valid"),
        (f"{{{ON}, mig-devices: {{1g.5gb: two}}}}", f'{X}.mig-devices["1g.5gb"]', "'two'"),
        (f"{{{ON}, mig-devices: {{1g: 1}}}}", f'{X}.mig-devices["1g"]', "the name of a profile"),
        ("{device-filter: A100, devices: all, mig-enabled: false}", f"{X}.device-filter", "'A100'"),
        ("{device-filter: ['0x20B010DE', '0x20'], devices: all, mig-enabled: false}",
         f"{X}.device-filter[1]", "'0x20' is not valid"),
    ],
)  # fmt: skip
def test_an_entry_is_refused_by_field_value_and_what_is_allowed(
    entry: str, field: str, said: str
) -> None:
    with pytest.raises(InvalidError) as caught:
        read(entry)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")
    assert said in str(caught.value)
    assert caught.value.reason == "InvalidMigConfig"


def test_all_that_is_wrong_is_named_at_once() -> None:
    entries = (
        "{mig-enabled: 'on', device: all}",
        f"{{{ON}, mig-devices: {{1g: 1, 2g.10gb: x}}, device-filter: [a, b]}}",
    )
    with pytest.raises(InvalidError) as caught:
        configs.read(f"mig-configs:\n  x: [{', '.join(entries)}]\n  y: []\n", "f")
    parts = caught.value.message.removeprefix("10 fields are wrong: ").split("; (")
    assert [each.partition(") ")[2].partition(": ")[0] for each in ["1" + parts[0], *parts[1:]]][
        :6
    ] == [
        "version",
        f"{X}.device",
        f"{X}.mig-enabled",
        f"{X}.devices",
        'mig-configs["x"][1].mig-devices["1g"]',
        'mig-configs["x"][1].mig-devices["2g.10gb"]',
    ]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "f"),
        ("[]", "f"),
        ("mig-configs: {x: [{devices: all, mig-enabled: false}]}", "version"),
        ("version: v2\nmig-configs: {x: [{devices: all, mig-enabled: false}]}", "version"),
        ("version: v1", "mig-configs"),
        ("version: v1\nmig-configs: {}", "mig-configs"),
        ("version: v1\nmig-configs: {x: []}", 'mig-configs["x"]'),
        ("version: v1\nmig-configs: {1: [{devices: all, mig-enabled: false}]}",
         "mig-configs: the name of a config"),
        ("version: v1\nmigconfigs: {}", "migconfigs"),
        ("kind: ConfigMap\ndata: {other: x}", "data"),
        ("version: v1\nmig-configs: {x: [}", "f"),
        ("version: v1\nversion: v1", "f"),
    ],
)  # fmt: skip
def test_a_file_is_refused_by_field(text: str, field: str) -> None:
    with pytest.raises(InvalidError) as caught:
        configs.read(text, "f")
    assert caught.value.field == field


def test_a_line_that_is_too_deep_in_another_way_is_refused() -> None:
    with pytest.raises(InvalidError, match="line 2"):
        configs.read("version: v1\n  - x: y\n", "f")


def test_a_name_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(NotFoundError, match=r"'all'.*allowed: disabled, 2x2g.10gb-3x1g.5gb"):
        configs.read(seeds.PRINTED).find("all")


def test_what_is_written_is_read_again() -> None:
    written = {
        "all-disabled": (configs.Entry(enabled=False),),
        "yes": (
            configs.Entry(enabled=True, devices=(0, 3), counts={"1g.10gb+me": 1, "2g.20gb": 2}),
            configs.Entry(
                enabled=True,
                filters=(configs.Filter(0x20B010DE), configs.Filter(0x20B210DE, 0x147F10DE)),
            ),
        ),
        "7x1g.5gb": (configs.Entry(enabled=True, counts={"1g.5gb": 7}),),
    }
    assert configs.read(configs.write(written)).by_name == written
    assert configs.read(json.dumps(configs.document(written))).by_name == written
    assert yaml.safe_load(configs.write(written)) == configs.document(written)
