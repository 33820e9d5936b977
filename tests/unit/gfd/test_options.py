# SPDX-License-Identifier: Apache-2.0
"""Flags, GFD_ variables and the config become options; the first win, but for the MIG strategy."""

from __future__ import annotations

import math

import pytest

from gpudeck import errors, settings
from gpudeck.gfd import options, sharing
from gpudeck.gfd.settings import Settings
from gpudeck.pluginconfig import reading

FILE = """
version: v1
flags:
  migStrategy: mixed
  useNodeFeatureAPI: false
  plugin: {deviceListStrategy: envvar}
  gfd: {sleepInterval: 1m30s, noTimestamp: true, outputFile: /run/labels}
sharing:
  timeSlicing:
    resources: [{name: gpu, replicas: 4, rename: gpu.part}]
"""


def merged(env: dict[str, str], text: str = "", **flags: str) -> options.Options:
    return options.merged(settings.load(Settings, flags, env), reading.parse(text))


def test_defaults_are_those_of_gpu_feature_discovery() -> None:
    assert merged({}) == options.Options()
    assert options.Options().sleep_seconds == 60
    assert options.Options().output_file.endswith("/features.d/gfd")


def test_the_file_is_followed() -> None:
    found = merged({}, FILE)
    assert (found.mig_strategy, found.use_node_feature_api) == ("mixed", False)
    assert (found.sleep_seconds, found.timestamp, found.output_file) == (90, False, "/run/labels")
    assert found.sharing == sharing.Sharing(
        sharing.Strategy.TIME_SLICING, (sharing.Shared(name="gpu", replicas=4, renamed=True),)
    )


def test_variables_win_over_the_file_and_flags_over_variables() -> None:
    env = {"GFD_SLEEP_INTERVAL": "infinite", "GFD_NO_TIMESTAMP": "false"}
    found = merged(env, FILE)
    assert math.isinf(found.sleep_seconds)
    assert found.timestamp
    assert merged(env, FILE, no_timestamp="true").timestamp is False


def test_the_mig_strategy_is_what_the_plugin_offers_by() -> None:
    env = {"MIG_STRATEGY": "single"}
    assert merged(env).mig_strategy == "single"
    assert merged(env, FILE).mig_strategy == "mixed"
    assert merged(env, FILE, mig_strategy="none").mig_strategy == "mixed"


def test_the_programs_own_variable_wins_over_those_it_replaces() -> None:
    env = {"MIG_STRATEGY": "single", "GFD_MIG_STRATEGY": "mixed"}
    assert merged(env).mig_strategy == "mixed"
    assert merged({**env, "GPUDECK_MIG_STRATEGY": "none"}).mig_strategy == "none"


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        ({"mig_strategy": "both"}, "--mig-strategy"),
        ({"oneshot": "perhaps"}, "--oneshot"),
        ({"sleep_interval": "60"}, "--sleep-interval"),
    ],
)
def test_what_cannot_be_is_refused_by_name(flags: dict[str, str], field: str) -> None:
    with pytest.raises(errors.InvalidError, match=field) as caught:
        merged({}, FILE, **flags)
    assert caught.value.field == field
    assert caught.value.allowed
