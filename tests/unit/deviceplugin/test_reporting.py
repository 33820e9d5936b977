# SPDX-License-Identifier: Apache-2.0
"""What the Node's condition says."""

from gpudeck.deviceplugin import offering, reporting
from gpudeck.pluginconfig import selecting
from gpudeck.pluginconfig.selecting import Choices

CONFIGS = {"slice-4": "version: v1"}
PROBLEM = offering.Problem(reason="SharedResourceMissing", message="It is not there.")


def test_a_config_in_force_is_named_with_who_chose_it() -> None:
    said = reporting.condition(selecting.select(CONFIGS, Choices(label="slice-4"), None), [])
    assert (said.is_true, said.reason) == (True, "ConfigInForce")
    assert said.message == "The config slice-4 (label) is in force."


def test_a_config_that_is_not_used_comes_before_what_cannot_be_offered() -> None:
    good = selecting.select(CONFIGS, Choices(label="slice-4"), None)
    assert reporting.condition(good, [PROBLEM]).reason == "SharedResourceMissing"
    bad = selecting.select(CONFIGS, Choices(label="other"), good)
    said = reporting.condition(bad, [PROBLEM])
    assert (said.is_true, said.reason) == (False, "PluginConfigUnknown")
    assert said.message.endswith("The config slice-4 stays in force.")


def test_without_a_config_none_is_said_to_be_in_force() -> None:
    said = reporting.condition(selecting.select({}, Choices(), None), [])
    assert said.is_true
    assert said.message == "No config is chosen; the plugin's settings alone count."
    missing = selecting.select({}, Choices(), None, absent=("sharing",))
    assert reporting.condition(missing, []) == reporting.Said(
        reason="PluginConfigMapMissing",
        message=(
            "the ConfigMap sharing, which has the configs, is not there. No config is in force."
        ),
        is_true=False,
    )
