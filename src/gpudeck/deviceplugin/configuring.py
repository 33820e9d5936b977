# SPDX-License-Identifier: Apache-2.0
"""Which config holds on this node, followed as the Node's label and the ConfigMap change.

The last good config is kept on disk, so that a plugin which starts while the API server
is away offers what it offered before. Nothing is decided from a cache that is not full
yet: a ConfigMap that was not read is not one that is missing.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from gpudeck import errors, logs
from gpudeck.api.core import ConfigMap
from gpudeck.api.meta import Meta, ObjectMeta
from gpudeck.api.resources import CONFIG_MAP, NODE
from gpudeck.deviceplugin import answering
from gpudeck.deviceplugin.settings import Settings
from gpudeck.host import files, root
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.watching import Change
from gpudeck.pluginconfig import model, selecting

log = logs.get(__name__)

STATE_FILE = "device-plugin.json"
FILE_NAME = "file"
"""The config of `--config-file` has this name."""

Word = TypeVar("Word", bound=enum.StrEnum)
Show = Callable[[selecting.Selected], None]


class Kept(msgspec.Struct, frozen=True):
    """The state file, version 1."""

    version: int
    name: str
    text: str


def state_file(settings: Settings) -> Path:
    """Where the last good config is kept."""
    return settings.data_dir / STATE_FILE


def choices(settings: Settings, label: str = "") -> selecting.Choices:
    """Who wants what. Raises InvalidError for a fallback that there is not."""
    fallbacks = []
    for word in settings.config_fallback:
        if word not in set(selecting.Fallback):
            allowed = ", ".join(selecting.Fallback)
            raise errors.InvalidError(
                f"--config-fallback: {word!r} is not valid; allowed: {allowed}",
                field="--config-fallback",
                allowed=allowed,
            )
        fallbacks.append(selecting.Fallback(word))
    return selecting.Choices(
        label=label,
        group=settings.group_config,
        default=settings.default_config,
        fallbacks=tuple(fallbacks),
    )


class Configuring:
    """Tells `show` the config that holds; `run` must run."""

    def __init__(self, settings: Settings, api: Client | None, show: Show) -> None:
        self._settings = settings
        self._show = show
        self._selected: selecting.Selected | None = None
        self._saved: Kept | None = None
        self._nodes: Cache[Meta] | None = None
        self._maps: Cache[ConfigMap] | None = None
        if api is None:
            return
        self._nodes = Cache(
            api,
            NODE,
            Meta,
            field_selector=f"metadata.name={settings.node_name}",
            keep=_trimmed,
        )
        if settings.config_map:
            self._maps = Cache(
                api,
                CONFIG_MAP,
                ConfigMap,
                namespace=settings.namespace or api.namespace,
                field_selector=f"metadata.name={settings.config_map}",
            )

    async def run(self) -> None:
        """Follow, for ever. Raises InvalidError for a config file that is wrong from the start."""
        if self._nodes is None:
            self._from_file()
            await asyncio.Event().wait()
            return
        await self._restore()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run(), name="node")
            if self._maps is not None:
                group.create_task(self._maps.run(), name="config map")
            group.create_task(self._follow(), name="config")

    def _from_file(self) -> None:
        configs = {}
        if self._settings.config_file:
            content = files.read(Path(self._settings.config_file))
            configs = {FILE_NAME: content.decode("utf-8", "replace")}
        selected = selecting.select(configs, choices(self._settings), None)
        if selected.problem is not None:
            raise errors.InvalidError(selected.problem.message, reason=selected.problem.reason)
        self._use(selected)

    async def _restore(self) -> None:
        try:
            content = await asyncio.to_thread(files.read, state_file(self._settings))
            self._saved = msgspec.json.decode(content, type=Kept)
        except errors.NotFoundError:
            return
        except (errors.GpudeckError, msgspec.DecodeError) as error:
            log.warning("The last config cannot be read", error=error)
            return
        restored = selecting.restore(self._saved.name, self._saved.text)
        if restored is not None:
            log.info("Using the config of the last run", config=restored.name)
            self._use(restored)

    async def _follow(self) -> None:
        if self._nodes is None:
            return
        await self._nodes.synced()
        if self._maps is not None:
            await self._maps.synced()
        wake = asyncio.Event()

        def woken(change: Change[Meta] | Change[ConfigMap]) -> None:
            wake.set()

        self._nodes.subscribe(woken)
        if self._maps is not None:
            self._maps.subscribe(woken)
        wake.set()
        while True:
            await wake.wait()
            wake.clear()
            self._select()
            await asyncio.to_thread(self._save)

    def _select(self) -> None:
        node = self._nodes.objects.get(self._settings.node_name) if self._nodes else None
        if node is None:
            return  # A Node that is not there chooses nothing: what holds stays.
        label = (node.metadata.labels or {}).get(selecting.LABEL, "")
        self._use(selecting.select(self._configs(), choices(self._settings, label), self._selected))

    def _configs(self) -> Mapping[str, str]:
        found = list(self._maps.objects.values()) if self._maps is not None else []
        return (found[0].data or {}) if found else {}

    def _use(self, selected: selecting.Selected) -> None:
        if selected == self._selected:
            return
        if selected.problem is not None:
            log.warning(
                "The config is not used",
                kept=selected.name,
                reason=selected.problem.reason,
                error=selected.problem.message,
            )
        else:
            log.info("Using config", config=selected.name, origin=selected.origin)
        self._selected = selected
        self._show(selected)

    def _save(self) -> None:
        """Keep what holds now. A disk that does not take it costs the next start, not this run."""
        if self._selected is None:
            return
        kept = Kept(version=1, name=self._selected.name, text=self._selected.text)
        if kept == self._saved:
            return
        path = state_file(self._settings)
        try:
            root.Root().make_directory(path.parent.as_posix())
            files.write_atomic(path, msgspec.json.encode(kept), mode=0o600)
            self._saved = kept
        except errors.GpudeckError as error:
            log.warning("The config cannot be kept for the next start", error=error)


def _trimmed(node: Meta) -> Meta:
    """What is used of a Node, so that the kubelet's reports of its state wake nobody."""
    label = (node.metadata.labels or {}).get(selecting.LABEL)
    kept = {selecting.LABEL: label} if label is not None else None
    return Meta(metadata=ObjectMeta(name=node.metadata.name, uid=node.metadata.uid, labels=kept))


def check(settings: Settings) -> None:
    """Raise InvalidError, by its flag, for a setting that cannot be."""
    choices(settings)
    completed(model.Config(), settings)
    _strategies(settings.device_list_strategy)


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


def completed(config: model.Config, settings: Settings) -> model.Config:
    """The config with what it leaves to the settings. Raises InvalidError for a wrong setting."""
    if config.flags.mig_strategy is not None:
        return config
    strategy = _member(settings.mig_strategy, model.MigStrategy, "--mig-strategy")
    flags = msgspec.structs.replace(config.flags, mig_strategy=strategy)
    return msgspec.structs.replace(config, flags=flags)


def _strategies(words: tuple[str, ...]) -> tuple[model.ListStrategy, ...]:
    found = tuple(_member(each, model.ListStrategy, "--device-list-strategy") for each in words)
    return found or (model.ListStrategy.CDI_CRI,)


def _member(word: str, words: type[Word], field: str) -> Word:
    try:
        return words(word)
    except ValueError as error:
        allowed = ", ".join(each.value for each in words)
        raise errors.InvalidError(
            f"{field}: {word!r} is not valid; allowed: {allowed}", field=field, allowed=allowed
        ) from error
