# SPDX-License-Identifier: Apache-2.0
"""`gpudeck mig`: partition the cards of the host that it runs on, ahead of pods.

It needs no cluster. Options and the format of files are those of nvidia-mig-parted, so
that its calls in scripts and units go on working. Without a file the configs are those
that the host's cards offer.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from gpudeck import errors, logs, settings
from gpudeck.api import labels
from gpudeck.cli import mig_showing, starting
from gpudeck.dra import checkpoint as prepared
from gpudeck.host import files, locks, platform, root, stopping, systemctl
from gpudeck.mig import (
    applying,
    attending,
    checkpoints,
    choosing,
    clients,
    configs,
    defaults,
    exporting,
    generating,
    planning,
)
from gpudeck.repartitioning import stepping

T = TypeVar("T")
Command = Callable[..., None]
_CURRENT = "current"
"""The name that nvidia-mig-parted gives to what it exports."""


@click.group()
def mig() -> None:
    """Partition the cards of this host as a config says.

    Not for nodes in DRA mode: there partitions follow the claims of pods.
    """
    starting.put_back_first()  # Locks, services of the host, the child with the maker's library.


def _on_host(command: Command) -> Command:
    """Add the options that say which cards, and pass them on as `place`."""

    @click.option("--vendor", default="nvidia", show_default=True, help="Maker of the cards.")
    @click.option("--host-root", default="/", show_default=True, help="The host's root.")
    @click.option(
        "--log-level", default="error", show_default=True, help="Least severe line.",
        type=click.Choice(settings.LEVELS, case_sensitive=False),
    )  # fmt: skip
    @functools.wraps(command)
    def wrapped(*, vendor: str, host_root: str, log_level: str, **given: Any) -> None:
        logs.configure(log_level)
        command(place=attending.Place(vendor, host_root, log_level), **given)

    return wrapped


def _configured(command: Command) -> Command:
    """Add the options that choose a config."""

    @click.option(
        "-f",
        "--config-file",
        envvar="MIG_PARTED_CONFIG_FILE",
        help="Configs, or the ConfigMap that holds them; - for stdin. Without it: those that "
        "the cards offer.",
    )
    @click.option(
        "-c",
        "--selected-config",
        envvar="MIG_PARTED_SELECTED_CONFIG",
        help="Name of the config; may be left out where the file has one.",
    )
    @click.option(
        "--mode-only",
        is_flag=True,
        envvar="MIG_PARTED_MODE_CHANGE_ONLY",
        help="Look at the MIG mode alone, not at partitions.",
    )
    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        command(**given)

    return wrapped


_stopping = click.option(
    "--stop-services",
    "services",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Services of the host that have cards open, as clients.yaml of the GPU operator lists "
    "them: those that run are stopped while cards are changed.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@mig.command()
@_configured
@_on_host
@_as_json
def plan(
    *,
    config_file: str | None,
    selected_config: str | None,
    mode_only: bool,
    place: attending.Place,
    as_json: bool,
) -> None:
    """Show what `apply` would do, and change nothing."""
    given = _read(config_file)

    async def work(cards: attending.Cards) -> planning.Plan:
        return _plan(cards, given, selected_config, mode_only=mode_only)

    found = _run(place, work, changing=False)
    mig_showing.show_plan(found, as_json=as_json)


@mig.command()
@_configured
@_stopping
@_on_host
@_as_json
def apply(
    *,
    config_file: str | None,
    selected_config: str | None,
    mode_only: bool,
    services: Path | None,
    place: attending.Place,
    as_json: bool,
) -> None:
    """Partition the cards as the config says.

    Cards that are so already are not touched, partitions that fit stay. A card that is in
    use is refused by the driver: free it first.
    """
    given = _read(config_file)

    def make_plan(cards: attending.Cards) -> planning.Plan:
        return _plan(cards, given, selected_config, mode_only=mode_only)

    _change(place, make_plan, services, as_json=as_json)


@mig.command("assert")
@_configured
@click.option("--valid-config", is_flag=True, help="Check the file alone; needs no card.")
@_on_host
@_as_json
def assert_(
    *,
    config_file: str | None,
    selected_config: str | None,
    mode_only: bool,
    valid_config: bool,
    place: attending.Place,
    as_json: bool,
) -> None:
    """Fail unless the cards are as the config says.

    Exits with 0 if they are, else with 1.
    """
    given = _read(config_file)
    if valid_config:
        if given is None:
            raise errors.InvalidError("--valid-config: there is nothing to check; give -f FILE")
        _select(given, selected_config)
        return

    async def work(cards: attending.Cards) -> planning.Plan:
        return _plan(cards, given, selected_config, mode_only=mode_only)

    found = _run(place, work, changing=False)
    if not found.is_done:
        mig_showing.show_plan(found, as_json=as_json)
        sys.exit(1)


@mig.command()
@click.option("-c", "--config-label", default=_CURRENT, show_default=True, help="Name to give it.")
@click.option("-o", "--output-format", type=click.Choice(["yaml", "json"]), default="yaml")
@_on_host
def export(*, config_label: str, output_format: str, place: attending.Place) -> None:
    """Print how the cards are partitioned now, as a config."""

    async def work(cards: attending.Cards) -> exporting.Exported:
        _some_read(cards)
        return exporting.export(cards.now)

    found = _run(place, work, changing=False)
    mig_showing.show_notes(found.notes)
    if not found.config:
        raise errors.UnsupportedError(
            "no card of this host can be partitioned", reason="PartitioningNotAvailable"
        )
    mig_showing.show_configs({config_label: found.config}, output_format)


@mig.command("generate-config")
@click.option("--all-models", is_flag=True, help="For every known model; needs no card.")
@click.option("-o", "--output-format", type=click.Choice(["yaml", "json"]), default="yaml")
@_on_host
def generate_config(*, all_models: bool, output_format: str, place: attending.Place) -> None:
    """Print the configs that the cards offer."""

    async def work(cards: attending.Cards) -> dict[str, configs.Config]:
        return _offered(cards)

    found = defaults.all_models() if all_models else _run(place, work, changing=False)
    mig_showing.show_configs(found, output_format)


_checkpoint_file = click.option(
    "-f",
    "--checkpoint-file",
    required=True,
    envvar="MIG_PARTED_CHECKPOINT_FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where it is kept.",
)


@mig.command()
@_checkpoint_file
@_on_host
def checkpoint(*, checkpoint_file: Path, place: attending.Place) -> None:
    """Write down how exactly the cards are partitioned."""

    async def work(cards: attending.Cards) -> checkpoints.Checkpoint:
        return checkpoints.take(cards.now)

    found = _run(place, work, changing=False)
    files.write_atomic(checkpoint_file.absolute(), checkpoints.encode(found))


@mig.command()
@_checkpoint_file
@_stopping
@_on_host
@_as_json
def restore(
    *, checkpoint_file: Path, services: Path | None, place: attending.Place, as_json: bool
) -> None:
    """Partition the cards as they were at the checkpoint."""
    kept = checkpoints.decode(files.read(checkpoint_file), str(checkpoint_file))

    def make_plan(cards: attending.Cards) -> planning.Plan:
        return checkpoints.plan(kept, cards.now)

    _change(place, make_plan, services, as_json=as_json)


def _change(
    place: attending.Place,
    make_plan: Callable[[attending.Cards], planning.Plan],
    services: Path | None,
    *,
    as_json: bool,
) -> None:
    """Change the cards, say what came of it, and end with 1 where one could not be done."""
    units = clients.read(str(services), _text(services)) if services else ()

    async def work(cards: attending.Cards) -> applying.Outcome:
        is_done = make_plan(cards).is_done
        async with _stopped(place, () if is_done else units):
            return await applying.reach(lambda: make_plan(cards), cards)

    outcome = _run(place, work, changing=True)
    mig_showing.show_outcome(outcome, as_json=as_json)
    if not services and any(each.error.reason in stepping.IN_USE for each in outcome.failures):
        mig_showing.show_notes(
            ["services of the host can be stopped for the change: --stop-services FILE."]
        )
    if outcome.failures:
        sys.exit(1)


def _run(
    place: attending.Place, work: Callable[[attending.Cards], Awaitable[T]], *, changing: bool
) -> T:
    async def attended() -> T:
        async with contextlib.AsyncExitStack() as stack:
            if changing:
                await stack.enter_async_context(_without_claims(place))
            cards = await stack.enter_async_context(attending.attended(place, changing=changing))
            return await work(cards)

    return asyncio.run(attended())


@contextlib.asynccontextmanager
async def _stopped(place: attending.Place, units: Sequence[str]) -> AsyncIterator[None]:
    """Those of the units that run are stopped inside the block.

    What a command that was killed has left stopped runs again after it, too.
    """
    host = root.Root(place.host_root)
    known = stopping.Stopping(host, "mig")
    try:
        if running := await systemctl.running(host, units):
            await known.stop(running)
        yield
    finally:
        try:
            await known.start()
        except errors.UnavailableError as error:
            mig_showing.show_notes([f"{error.message}; start it by hand."])


@contextlib.asynccontextmanager
async def _without_claims(place: attending.Place) -> AsyncIterator[None]:
    """No claim of DRA mode is prepared on this host inside the block.

    Raises BusyError where some are: they hold cards and partitions that no process may use yet.
    """
    host = root.Root(place.host_root)
    data = host.real(f"/var/lib/kubelet/plugins/{labels.DRIVER}")
    if not data.is_dir():
        yield
        return
    async with locks.held(data / prepared.LOCK, deadline_seconds=attending.LOCK_SECONDS):
        content = prepared.Store(data / prepared.FILE).read()
        # The file outlives a reboot, its claims do not.
        if content and content.claims and content.boot_id == platform.boot_id(host):
            claims = ", ".join(sorted(map(str, content.claims.values())))
            raise errors.BusyError(
                f"claims of DRA mode are prepared on this node: {claims}; partitions follow the "
                "claims there. Drain the node of the pods that have them first",
                reason="ClaimsPrepared",
            )
        yield


def _read(config_file: str | None) -> configs.Configs | None:
    if not config_file:
        return None
    if config_file == "-":
        return configs.read(sys.stdin.read(), "stdin")
    return configs.read(_text(Path(config_file)), config_file)


def _text(path: Path) -> str:
    return files.read(path).decode("utf-8", "replace")


def _plan(
    cards: attending.Cards, given: configs.Configs | None, name: str | None, *, mode_only: bool
) -> planning.Plan:
    known = given or configs.Configs(_offered(cards))
    found = planning.plan(_select(known, name), cards.now, mode_only=mode_only)
    return planning.Plan(found.cards, (*known.notes, *found.notes))


def _offered(cards: attending.Cards) -> dict[str, configs.Config]:
    """The configs that the cards offer."""
    _some_read(cards)
    return generating.generate(cards.now)


def _some_read(cards: attending.Cards) -> None:
    """Raises UnavailableError where no card can be read: then nothing is told of any."""
    unread = choosing.unread(cards.now)
    if unread is not None:
        raise unread


def _select(known: configs.Configs, name: str | None) -> choosing.Named:
    names = list(known.by_name)
    if not name:
        if len(names) > 1:
            allowed = ", ".join(names)
            raise errors.InvalidError(
                f"--selected-config: is missing; allowed: {allowed}",
                field="--selected-config",
                allowed=allowed,
            )
        name = names[0]
    return choosing.Named(name, known.find(name))
