# SPDX-License-Identifier: Apache-2.0
"""What of the plugin's config and settings decides how devices are handed out.

Which config holds is `pluginconfig`'s; here it is followed, from the ConfigMap with the last
good one kept on disk, or from a file.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from gpudeck.api import labels
from gpudeck.api.core import Node
from gpudeck.cdi import plugins
from gpudeck.deviceplugin import answering
from gpudeck.deviceplugin.settings import Settings
from gpudeck.kube.client import Client
from gpudeck.kube.watching import Change
from gpudeck.pluginconfig import filing, following, keeping, model, telling
from gpudeck.pluginconfig import settings as configured


def check(settings: Settings) -> None:
    """Raise InvalidError, by its flag, for a setting that cannot be."""
    configured.check(settings)
    _strategies(settings.device_list_strategy)


def state_file(settings: Settings) -> Path:
    """Where the last good config is kept."""
    return settings.data_dir / plugins.STATE_FILE


class Configuring:
    """Tells `show` the config that holds; `run` must run."""

    def __init__(
        self,
        settings: Settings,
        api: Client | None,
        show: telling.Show,
        *,
        appeared: Callable[[], None] = lambda: None,
    ) -> None:
        """`appeared` is called when the Node is there, also when it was made anew."""
        self.was_in_mode = False
        """The Node has said that device plugins serve it."""
        self._appeared = appeared
        self._nodes = following.own_node(api, settings.node_name) if api is not None else None
        if self._nodes is not None:
            self._nodes.subscribe(self._node_changed)
        self._run: Callable[[], Coroutine[Any, Any, None]]
        state = keeping.State(state_file(settings))
        is_file = bool(settings.config_file) and not settings.config_maps
        if api is None or self._nodes is None or is_file:
            file = filing.File(settings.config_file)
            self._run = functools.partial(file.follow, show, state)
            return
        found = following.Following(settings, api, show, nodes=self._nodes, state=state)
        self._run = found.run

    def _node_changed(self, change: Change[Node]) -> None:
        if following.is_made(change):
            self._appeared()
        known = (change.new.metadata.labels or {}) if change.new is not None else {}
        self.was_in_mode |= known.get(labels.ACTIVE_MODE) == labels.MODE_DEVICE_PLUGIN

    async def run(self) -> None:
        """Follow, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run(), name="config")
            if self._nodes is not None:
                group.create_task(self._nodes.run(), name="node")


def way(flags: model.Flags, imex: model.Imex, settings: Settings) -> answering.Way:
    """How containers are told of their devices: what the config says, else the settings."""
    plugin = flags.plugin
    listed = plugin.device_list_strategy
    if listed is None:
        listed = _strategies(settings.device_list_strategy)
    features = {
        "gdrcopy": flags.gdrcopy_enabled,
        "gds": flags.gds_enabled,
        "mofed": flags.mofed_enabled,
    }
    return answering.Way(
        strategies=listed,
        ids=plugin.device_id_strategy or model.IdStrategy.UUID,
        annotation_prefix=plugin.cdi_annotation_prefix or "cdi.k8s.io/",
        pass_device_specs=plugin.pass_device_specs or False,
        imex_channels=imex.channel_ids,
        imex_required=imex.required,
        features=tuple(name for name, is_on in features.items() if is_on),
    )


def _strategies(words: tuple[str, ...]) -> tuple[model.ListStrategy, ...]:
    found = tuple(
        configured.member(each, model.ListStrategy, "--device-list-strategy") for each in words
    )
    return found or (model.ListStrategy.CDI_CRI,)
