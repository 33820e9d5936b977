# SPDX-License-Identifier: Apache-2.0
"""What a config leaves to the settings, and which settings cannot be."""

import pytest

from gpudeck import settings
from gpudeck.deviceplugin.settings import Settings as PluginSettings
from gpudeck.errors import InvalidError
from gpudeck.gfd.settings import Settings as GfdSettings
from gpudeck.pluginconfig import model, reading
from gpudeck.pluginconfig import settings as configured
from gpudeck.pluginconfig.model import MigStrategy
from gpudeck.pluginconfig.selecting import LABEL, Choices, Fallback
from gpudeck.pluginconfig.settings import ConfigSettings


def test_a_config_has_precedence_over_the_settings() -> None:
    config = reading.parse("flags: {migStrategy: mixed}")
    found = configured.completed(config, ConfigSettings(mig_strategy="single"))
    assert found.flags.mig_strategy is MigStrategy.MIXED


def test_the_settings_fill_what_a_config_does_not_say() -> None:
    found = configured.completed(model.Config(), ConfigSettings(mig_strategy="single"))
    assert found.flags.mig_strategy is MigStrategy.SINGLE


def test_plugin_and_labels_find_their_config_by_the_same_settings() -> None:
    env = {"DEFAULT_CONFIG": "slice-4", "FALLBACK_STRATEGIES": "single", "MIG_STRATEGY": "mixed"}
    for each in (PluginSettings, GfdSettings):
        loaded = settings.load(each, {}, env)
        assert loaded.mig_strategy == "mixed"
        assert configured.choices(loaded, {LABEL: "a"}) == Choices(
            label="a", default="slice-4", fallbacks=(Fallback.SINGLE,)
        )
        assert configured.choices(settings.load(each, {}, {})) == Choices()


def test_an_empty_strategy_is_none() -> None:
    found = configured.completed(model.Config(), ConfigSettings(mig_strategy=""))
    assert found.flags.mig_strategy is MigStrategy.NONE


@pytest.mark.parametrize(
    ("wrong", "field", "allowed"),
    [
        (ConfigSettings(mig_strategy="some"), "--mig-strategy", "none, single, mixed"),
        (ConfigSettings(config_fallback=("none",)), "--config-fallback", "named, single, empty"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_flag(
    wrong: ConfigSettings, field: str, allowed: str
) -> None:
    with pytest.raises(InvalidError) as caught:
        configured.check(wrong)
    assert (caught.value.field, caught.value.allowed) == (field, allowed)
