# SPDX-License-Identifier: Apache-2.0
"""Which named config holds on a node, and which one stays when the chosen one is no good.

Pure; called whenever the Node's label or the ConfigMap changes. The order is: the
node's label, the NodeGroup's choice, the cluster's default, the fallback strategies.
A name that is not there or a config that is wrong changes nothing: the last good one
stays and the `Problem` says why (NVIDIA's config-manager 0.20 ends instead).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

import msgspec

from gpudeck import errors
from gpudeck.api import labels
from gpudeck.errors import InvalidError
from gpudeck.pluginconfig import model, reading

LABEL = labels.PLUGIN_CONFIG
GROUP_LABEL = "node.deckhouse.io/device-gpu.config"
"""On Node: the name of the config that its group chose; written by the controller."""
UNKNOWN = "PluginConfigUnknown"
MISSING = "PluginConfigMapMissing"


class Origin(enum.StrEnum):
    LABEL = "label"
    GROUP = "node group"
    DEFAULT = "default"
    FALLBACK = "fallback"
    FILE = "file"


class Fallback(enum.StrEnum):
    """What holds where nobody has chosen."""

    NAMED = "named"
    """The config called `default`."""
    SINGLE = "single"
    """The only config there is."""
    EMPTY = "empty"
    """A config that says nothing."""


class Problem(model.Value, frozen=True):
    """Why the last good config stays."""

    reason: str
    message: str


class Selected(model.Value, frozen=True):
    """The config that holds."""

    name: str
    """Empty for the one that says nothing."""
    origin: Origin
    text: str
    config: model.Config
    problem: Problem | None = None


class Choices(model.Value, frozen=True):
    """Who wants what; an empty text is no choice."""

    label: str = ""
    group: str = ""
    default: str = ""
    fallbacks: tuple[Fallback, ...] = (Fallback.NAMED, Fallback.EMPTY)


NOTHING = Selected(name="", origin=Origin.FALLBACK, text="", config=model.Config())


def select(
    configs: Mapping[str, str],
    choices: Choices,
    before: Selected | None,
    *,
    absent: Sequence[str] = (),
) -> Selected:
    """Choose among `configs` (text by name). `before` is what holds until now.

    `absent` are ConfigMaps that were to have configs and are not there.

    Without a last good one, the next choice in order that is good holds meanwhile, in the end
    a config that says nothing.
    """
    problem: Problem | None = None
    for origin, name in _wanted(configs, choices):
        try:
            selected = _read(configs, origin, name)
        except InvalidError as error:
            problem = problem or _problem(error, absent)
            if before is not None:
                return _with(before, problem)
            continue
        return _with(selected, problem or (None if selected.name else _missing(absent)))
    return _with(before or NOTHING, problem)


def _problem(error: InvalidError, absent: Sequence[str]) -> Problem:
    message = error.message
    if absent and error.reason == UNKNOWN:
        message += f"; the ConfigMap {' and '.join(absent)} is not there"
    return Problem(reason=error.reason, message=message)


def _missing(absent: Sequence[str]) -> Problem | None:
    """A misspelt ConfigMap is to be heard of before somebody chooses one of its configs."""
    if not absent:
        return None
    maps = " and ".join(absent)
    why = "it is to hold the configs (chart value devicePlugin.config.name)"
    return Problem(reason=MISSING, message=f"ConfigMap {maps}: it is not there; {why}")


def restore(name: str, text: str) -> Selected | None:
    """The config of an earlier run, None if it is no longer understood."""
    try:
        config = reading.parse(text)
    except InvalidError:
        return None
    return Selected(name=name, origin=Origin.FALLBACK, text=text, config=config)


def of_file(name: str, text: str) -> Selected:
    """The only config of a process that reads a file. Raises InvalidError for a wrong one."""
    return Selected(name=name, origin=Origin.FILE, text=text, config=reading.parse(text))


def _wanted(configs: Mapping[str, str], choices: Choices) -> Sequence[tuple[Origin, str]]:
    chosen = [
        (Origin.LABEL, choices.label),
        (Origin.GROUP, choices.group),
        (Origin.DEFAULT, choices.default),
    ]
    wanted = [(origin, name) for origin, name in chosen if name]
    for fallback in choices.fallbacks:
        if fallback is Fallback.NAMED and "default" in configs:
            wanted.append((Origin.FALLBACK, "default"))
        elif fallback is Fallback.SINGLE and len(configs) == 1:
            wanted.append((Origin.FALLBACK, next(iter(configs))))
        elif fallback is Fallback.EMPTY:
            wanted.append((Origin.FALLBACK, ""))
    return wanted


def _read(configs: Mapping[str, str], origin: Origin, name: str) -> Selected:
    if not name:
        return NOTHING
    if name not in configs:
        allowed = errors.listed(sorted(configs)) or "none, for there is no config"
        raise InvalidError(
            f"{_where(origin)}: {name!r} is not the name of a config; allowed: {allowed}",
            reason=UNKNOWN,
            field=_where(origin),
            allowed=allowed,
        )
    try:
        config = reading.parse(configs[name])
    except InvalidError as error:
        raise error.inside(f"config {name!r}") from error
    notes = (*config.notes, *_too_late(config.flags))
    config = msgspec.structs.replace(config, notes=notes)
    return Selected(name=name, origin=origin, text=configs[name], config=config)


def _too_late(flags: model.Flags) -> list[str]:
    """What decides how a process begins, which a config that is chosen by a label does not."""
    known = (
        ("flags.useNodeFeatureAPI", flags.use_node_feature_api),
        ("flags.gfd.oneshot", flags.gfd.oneshot),
        ("flags.gfd.outputFile", flags.gfd.output_file),
    )
    why = "has no effect in a named config: gpu-feature-discovery has begun when one is chosen."
    return [f"{path}: {why}" for path, value in known if value is not None]


def _where(origin: Origin) -> str:
    return f"label {LABEL}" if origin is Origin.LABEL else f"{origin.value} of the plugin's config"


def _with(selected: Selected, problem: Problem | None) -> Selected:
    return msgspec.structs.replace(selected, problem=problem)
