# SPDX-License-Identifier: Apache-2.0
"""Settings of a process: one frozen dataclass each; a field is a flag and an environment variable.

`metrics_port: int = setting(8443, "…")` gives `--metrics-port` and
`GPUDECK_METRICS_PORT`; the flag wins. The command line (`cli.processes`) builds
its options from `describe`, and nothing else reads `os.environ` or `sys.argv`.
Shared groups are composed by inheritance of plain dataclasses without behaviour.
"""

from __future__ import annotations

import dataclasses
import math
import os
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from gpudeck import errors

T = TypeVar("T")
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


def setting(default: Any, meaning: str, *, also: tuple[str, ...] = ()) -> Any:
    """Declare a field with its default and the sentence that `--help` prints.

    `also` names variables of the program that the process replaces; gpudeck's own one wins.
    """
    return dataclasses.field(default=default, metadata={"help": meaning, "also": also})


@dataclasses.dataclass(frozen=True)
class Option:
    """One field as the command line sees it."""

    name: str
    flag: str
    env: str
    type: type
    default: Any
    help: str
    also: tuple[str, ...] = ()
    """Other variables that set it, the first that is there."""


def describe(cls: type) -> list[Option]:
    """List the options of a settings class, in the order of its fields."""
    hints = typing.get_type_hints(cls)
    return [
        Option(
            name=field.name,
            flag="--" + field.name.replace("_", "-"),
            env="GPUDECK_" + field.name.upper(),
            type=hints[field.name],
            default=field.default,
            help=field.metadata.get("help", ""),
            also=field.metadata.get("also", ()),
        )
        for field in dataclasses.fields(cls)
    ]


def load(cls: type[T], flags: Mapping[str, str | None], env: Mapping[str, str] | None = None) -> T:
    """Build `cls` from flags (by field name; None = not given), the environment and defaults.

    Raises InvalidError that names the flag or variable, the value and what is allowed.
    """
    source = os.environ if env is None else env
    values: dict[str, Any] = {}
    for option in describe(cls):
        given = flags.get(option.name)
        if given is not None:
            values[option.name] = parse(option, given, option.flag)
            continue
        for name in (option.env, *option.also):
            if name in source:
                values[option.name] = parse(option, source[name], name)
                break
    return cls(**values)


def parse(option: Option, text: str, origin: str) -> Any:
    """Turn `text` into the option's type; `origin` is named in the error."""
    try:
        return _PARSERS[option.type](text)
    except (ValueError, KeyError) as error:
        allowed = _ALLOWED.get(option.type, "text")
        raise errors.not_valid(origin, text, allowed) from error


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in _TRUE or lowered in _FALSE:
        return lowered in _TRUE
    raise ValueError(text)


def _number(text: str) -> float:
    number = float(text)
    if math.isnan(number):
        raise ValueError(text)
    return number


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_PARSERS: dict[Any, Any] = {
    str: str,
    int: int,
    float: _number,
    bool: _boolean,
    Path: Path,
    tuple[str, ...]: _words,
}
_ALLOWED: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple[str, ...]: "words separated by commas",
}


LEVELS = ("debug", "info", "warning", "error")


@dataclasses.dataclass(frozen=True)
class LogSettings:
    """What every process has."""

    log_level: str = setting("info", f"Least severe log line printed: {', '.join(LEVELS)}.")

    def __post_init__(self) -> None:
        if self.log_level.lower() not in LEVELS:
            raise errors.not_valid("--log-level", self.log_level, ", ".join(LEVELS))


@dataclasses.dataclass(frozen=True)
class CardSettings:
    """Processes that judge a node's cards."""

    poll_seconds: float = setting(10.0, "Seconds between two readings of all cards.")
    call_seconds: float = setting(
        5.0, "Seconds after which a reading of a card counts as hung and its process is ended."
    )
    disable_health_checks: tuple[str, ...] = setting(
        (),
        "What does not make a card unhealthy: numbers of Xids, xids for all of them, all for what "
        "readings show as well.",
        also=("DP_DISABLE_HEALTHCHECKS",),
    )
    enable_health_checks: tuple[str, ...] = setting(
        (),
        "The same words: what makes a card unhealthy although it is disabled, or passed over "
        "usually.",
        also=("DP_ENABLE_HEALTHCHECKS",),
    )


@dataclasses.dataclass(frozen=True)
class KubeSettings(LogSettings):
    """Processes that speak to the API server."""

    kubeconfig: str = setting("", "Kubeconfig file; empty uses the pod's service account.")
    health_port: int = setting(0, "Port of /healthz, plain HTTP for probes; 0 serves none.")
    metrics_port: int = setting(0, "Port of /metrics, over TLS and with a token; 0 serves none.")


@dataclasses.dataclass(frozen=True)
class NodeSettings(KubeSettings):
    """Processes that work on one node."""

    node_name: str = setting("", "Name of the Node object this process works for.")
    host_root: Path = setting(Path("/"), "The host's root as this process sees it.")
    host_root_on_node: str = setting("/", "The host's root as the container runtime sees it.")


def check_node_name(settings: NodeSettings) -> None:
    """Raise InvalidError where the process is not told its Node."""
    if not settings.node_name:
        raise errors.not_valid("--node-name", "", "the name of this process's Node")
