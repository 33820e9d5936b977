# SPDX-License-Identifier: Apache-2.0
"""The settings by which a process finds its config, and what they mean.

Shared by the device plugin and GPU feature discovery. The order is: the Node's label, the
group's choice, the cluster's default, the fallbacks. What a config says has precedence over a
setting of the process: a config is chosen for a node, a setting is the cluster's.
(NVIDIA's programs 0.20 let the setting win, so that their chart decides for every node.)
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from gpudeck import errors
from gpudeck.pluginconfig import model, selecting
from gpudeck.settings import NodeSettings, setting

Word = TypeVar("Word", bound=enum.StrEnum)


@dataclasses.dataclass(frozen=True)
class ConfigSettings(NodeSettings):
    """Of a process that follows a config. With a ConfigMap the file is not read."""

    namespace: str = setting("", "Namespace of what this process reads; empty: the pod's own.")
    config_map: str = setting(
        "", "ConfigMap with named configs, of which the Node's label chooses one; empty: none."
    )
    group_config_map: str = setting(
        "",
        "ConfigMap with the configs of the node's group, of which the Node's label "
        "node.deckhouse.io/device-gpu.config chooses one; empty: none.",
    )
    config_file: str = setting(
        "",
        "File with one config, where there is no ConfigMap; empty: none.",
        also=("GFD_CONFIG_FILE", "CONFIG_FILE"),
    )
    group_config: str = setting("", "Name of the config that the node's group chose.")
    default_config: str = setting(
        "", "Name of the config of nodes for which nobody chose one.", also=("DEFAULT_CONFIG",)
    )
    config_fallback: tuple[str, ...] = setting(
        ("named", "empty"),
        "What holds where nobody chose, in order: named (the config called default), single "
        "(the only one there is), empty (none).",
        also=("FALLBACK_STRATEGIES",),
    )
    mig_strategy: str = setting(
        "none",
        "How partitions are named where the config does not say: none, single, mixed.",
        also=("GFD_MIG_STRATEGY", "MIG_STRATEGY"),
    )

    @property
    def config_maps(self) -> tuple[str, ...]:
        """The ConfigMaps that are followed; what a later one has of a name counts."""
        return tuple(filter(None, (self.config_map, self.group_config_map)))


def check(settings: ConfigSettings) -> None:
    """Raise InvalidError, by its flag, for a setting that cannot be."""
    choices(settings)
    completed(model.Config(), settings)


def choices(settings: ConfigSettings, node: Mapping[str, str] | None = None) -> selecting.Choices:
    """Who wants what, by the labels of the node and the settings.

    Raises InvalidError for a fallback that there is not.
    """
    known = node or {}
    group = known.get(selecting.GROUP_LABEL, "") if settings.group_config_map else ""
    return selecting.Choices(
        label=known.get(selecting.LABEL, ""),
        group=group or settings.group_config,
        default=settings.default_config,
        fallbacks=tuple(
            member(each, selecting.Fallback, "--config-fallback")
            for each in settings.config_fallback
        ),
    )


def completed(config: model.Config, settings: ConfigSettings) -> model.Config:
    """The config with what it leaves to the settings. Raises InvalidError for a wrong setting."""
    word = settings.mig_strategy or model.MigStrategy.NONE
    strategy = member(word, model.MigStrategy, "--mig-strategy")
    if config.flags.mig_strategy is not None:
        return config
    flags = msgspec.structs.replace(config.flags, mig_strategy=strategy)
    return msgspec.structs.replace(config, flags=flags)


def member(word: str, words: type[Word], field: str) -> Word:
    """The member of an enumeration. Raises InvalidError that names the flag and what is allowed."""
    try:
        return words(word)
    except ValueError as error:
        allowed = ", ".join(each.value for each in words)
        raise errors.not_valid(field, word, allowed) from error
