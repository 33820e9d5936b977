# SPDX-License-Identifier: Apache-2.0
"""The processes of the chart as commands: options from their settings, run until SIGTERM.

A process is `<package>/settings.py` with a settings class and `<package>/main.py` with
`async run(settings)`, which ends when it is cancelled. Its log goes to stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import importlib
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import click

from gpudeck import errors, logs, settings

_PACKAGES = {
    "controller": "gpudeck.controller",
    "node-agent": "gpudeck.agent",
    "dra-plugin": "gpudeck.dra",
    "adapter": "gpudeck.adapter",
    "mps-control": "gpudeck.vendors.nvidia.mps",
    "features": "gpudeck.features",
    "device-plugin": "gpudeck.deviceplugin",
    "gfd": "gpudeck.gfd",
    "mig-manager": "gpudeck.repartitioning",
}
_ARGUMENTS = {"adapter": "vendor", "features": "role"}
"""The setting of a process that is given as a word, not as an option."""
_PLAIN_LOOP = ("adapter", "mps-control", "device-plugin", "mig-manager")
"""They start children: uvloop does so by fork(), which gRPC warns about."""

_WITH_LIBRARY = ("adapter", "device-plugin", "gfd")
"""A child of theirs loads the maker's library: it does so while they import the rest."""


def command(name: str, meaning: str) -> click.Command:
    """Build the command of a process. Its main module is imported when it runs."""
    described: Any = importlib.import_module(f"{_PACKAGES[name]}.settings").Settings
    word = _ARGUMENTS.get(name)
    parameters: list[click.Parameter] = [
        click.Argument([option.name], required=False)
        if option.name == word
        else click.Option(
            [option.flag, option.name],
            metavar=_metavar(option),
            help=f"{option.help} [{', '.join((option.env, *option.also))}; "
            f"default: {_shown(option.default)}]",
        )
        for option in settings.describe(described)
    ]

    def start(**flags: str | None) -> None:
        given = settings.load(described, flags)
        logs.configure(given.log_level)
        if name in _WITH_LIBRARY:
            _prepare_library(given)
        run: Callable[[Any], Awaitable[None]] = importlib.import_module(
            f"{_PACKAGES[name]}.main"
        ).run
        gc.freeze()  # What is imported stays: no collection has to look through it.
        try:
            _event_loop(name)(_until_signalled(run(given)))
        except ExceptionGroup as group:
            raise only_error(group) from group

    return click.Command(name, params=parameters, callback=start, help=meaning)


def _prepare_library(given: Any) -> None:
    calling = importlib.import_module("gpudeck.vendors.calling")
    calling.program(given).prepare()


def _metavar(option: settings.Option) -> str:
    kind = option.type
    return kind.__name__.upper() if isinstance(kind, type) else "WORDS"


def _shown(default: Any) -> str:
    if default is dataclasses.MISSING:
        return "required"
    return ",".join(default) if isinstance(default, tuple) else str(default) or "empty"


def only_error(group: ExceptionGroup[Exception]) -> Exception:
    """Return the error that ended a TaskGroup, if all that it holds are gpudeck's own."""
    known, others = group.split(errors.GpudeckError)
    if known is None or others is not None:
        return group
    return errors.first(known)


def _event_loop(name: str) -> Callable[[Any], Any]:
    if name in _PLAIN_LOOP:
        return asyncio.run
    try:
        run: Callable[[Any], Any] = importlib.import_module("uvloop").run
    except ImportError:  # It exists for CPython on Unix only.
        return asyncio.run
    return run


async def _until_signalled(running: Awaitable[None]) -> None:
    """Await the process; SIGTERM and SIGINT cancel it, which is a clean end."""
    task = asyncio.ensure_future(running)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
