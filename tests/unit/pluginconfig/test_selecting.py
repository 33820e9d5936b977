# SPDX-License-Identifier: Apache-2.0
"""Which named config holds on a node."""

import pytest

from gpudeck.pluginconfig import selecting
from gpudeck.pluginconfig.selecting import Choices, Fallback, Origin

GOOD = "sharing: {timeSlicing: {resources: [{name: gpu, replicas: %d}]}}"
CONFIGS = {"slice-4": GOOD % 4, "slice-10": GOOD % 10, "default": "version: v1", "bad": "x: 1"}


@pytest.mark.parametrize(
    ("choices", "name", "origin"),
    [
        (Choices(label="slice-4", group="slice-10", default="default"), "slice-4", Origin.LABEL),
        (Choices(group="slice-10", default="default"), "slice-10", Origin.GROUP),
        (Choices(default="slice-10"), "slice-10", Origin.DEFAULT),
        (Choices(), "default", Origin.FALLBACK),
        (Choices(fallbacks=(Fallback.EMPTY,)), "", Origin.FALLBACK),
    ],
)
def test_the_nearest_choice_holds(choices: Choices, name: str, origin: Origin) -> None:
    selected = selecting.select(CONFIGS, choices, None)
    assert (selected.name, selected.origin, selected.problem) == (name, origin, None)


def test_the_only_config_holds_where_nobody_chose() -> None:
    choices = Choices(fallbacks=(Fallback.NAMED, Fallback.SINGLE, Fallback.EMPTY))
    assert selecting.select({"slice-4": GOOD % 4}, choices, None).name == "slice-4"
    # A node whose label was taken away is not to be shared by the only config there is.
    assert selecting.select({"slice-4": GOOD % 4}, Choices(), None).name == ""


def test_an_unknown_name_keeps_the_last_good_config_and_names_those_there_are() -> None:
    before = selecting.select(CONFIGS, Choices(label="slice-4"), None)
    selected = selecting.select(CONFIGS, Choices(label="slice-5"), before)
    assert selected.name == "slice-4"
    assert selected.problem is not None
    assert selected.problem.reason == selecting.UNKNOWN
    assert "slice-10" in selected.problem.message
    assert selecting.LABEL in selected.problem.message


def test_an_unknown_name_says_which_config_maps_are_not_there() -> None:
    selected = selecting.select({}, Choices(label="slice-4"), None, absent=("sharing",))
    assert selected.problem is not None
    assert selected.problem.message == (
        f"label {selecting.LABEL}: 'slice-4' is not the name of a config; allowed: none, for there "
        "is no config; the ConfigMap sharing is not there"
    )


def test_a_config_map_that_is_not_there_is_told_before_anybody_chooses_a_config() -> None:
    selected = selecting.select({}, Choices(), None, absent=("sharing",))
    assert selected.name == ""
    assert selected.problem is not None
    assert selected.problem.reason == "PluginConfigMapMissing"
    assert selected.problem.message == (
        "ConfigMap sharing: it is not there; it is to hold the configs (chart value "
        "devicePlugin.config.name)"
    )
    there = selecting.select({}, Choices(), selected)
    assert there.problem is None


def test_a_choice_of_the_group_needs_no_other_config_map() -> None:
    choices = Choices(group="slice-4")
    assert selecting.select(CONFIGS, choices, None, absent=("sharing",)).problem is None


def test_a_wrong_config_keeps_the_last_good_one_and_names_the_field() -> None:
    before = selecting.select(CONFIGS, Choices(label="slice-4"), None)
    selected = selecting.select(CONFIGS, Choices(label="bad"), before)
    assert selected.name == "slice-4"
    assert selected.problem is not None
    assert selected.problem.message.startswith("config 'bad': x: 1 is not valid")


def test_a_config_that_became_wrong_stays_as_it_was() -> None:
    before = selecting.select(CONFIGS, Choices(label="slice-4"), None)
    changed = {**CONFIGS, "slice-4": GOOD % 1}
    selected = selecting.select(changed, Choices(label="slice-4"), before)
    assert selected.config == before.config
    assert selected.text == GOOD % 4
    assert selected.problem is not None


def test_without_a_last_good_one_the_next_choice_holds_meanwhile() -> None:
    selected = selecting.select(CONFIGS, Choices(label="bad", default="slice-10"), None)
    assert (selected.name, selected.origin) == ("slice-10", Origin.DEFAULT)
    assert selected.problem is not None


def test_a_problem_goes_with_its_cause() -> None:
    before = selecting.select(CONFIGS, Choices(label="bad"), None)
    assert before.problem is not None
    assert selecting.select(CONFIGS, Choices(label="slice-4"), before).problem is None


def test_a_stored_config_that_is_no_longer_understood_is_none() -> None:
    restored = selecting.restore("slice-4", GOOD % 4)
    assert restored is not None
    assert restored.config.sharing is not None
    assert selecting.restore("bad", "x: 1") is None


def test_a_named_config_says_what_only_a_file_can_decide() -> None:
    text = (
        "flags: {useNodeFeatureAPI: false, gfd: {oneshot: true, outputFile: /a, noTimestamp: true}}"
    )
    notes = selecting.select({"a": text}, Choices(label="a"), None).config.notes
    assert [each.partition(":")[0] for each in notes] == [
        "flags.useNodeFeatureAPI",
        "flags.gfd.oneshot",
        "flags.gfd.outputFile",
    ]
    assert notes[0].endswith(
        "in a named config: gpu-feature-discovery has begun when one is chosen."
    )
    assert selecting.of_file("/config.yaml", text).config.notes == ()
