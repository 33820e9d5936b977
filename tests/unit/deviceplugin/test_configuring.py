# SPDX-License-Identifier: Apache-2.0
"""What a config leaves to the settings of the process."""

import pytest

from gpudeck.deviceplugin import configuring
from gpudeck.deviceplugin.settings import Settings
from gpudeck.errors import InvalidError
from gpudeck.pluginconfig import model, reading
from gpudeck.pluginconfig.model import ListStrategy


def test_a_config_has_precedence_over_the_settings() -> None:
    settings = Settings(device_list_strategy=("envvar",))
    config = reading.parse("flags: {gdsEnabled: true, plugin: {deviceListStrategy: [cdi-cri]}}")
    way = configuring.way(config.flags, config.imex, settings)
    assert way.strategies == (ListStrategy.CDI_CRI,)
    assert way.features == ("gds",)


def test_the_settings_fill_what_a_config_does_not_say() -> None:
    settings = Settings(device_list_strategy=("envvar", "cdi-cri"))
    way = configuring.way(model.Flags(), model.Imex(), settings)
    assert way.strategies == (ListStrategy.ENVVAR, ListStrategy.CDI_CRI)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (Settings(mig_strategy="some"), "--mig-strategy"),
        (Settings(device_list_strategy=("env",)), "--device-list-strategy"),
        (Settings(config_fallback=("none",)), "--config-fallback"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_flag(settings: Settings, field: str) -> None:
    with pytest.raises(InvalidError) as caught:
        configuring.check(settings)
    assert caught.value.field == field
