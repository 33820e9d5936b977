# SPDX-License-Identifier: Apache-2.0
"""The process features: starts the part of its role. Each part is one group of tasks."""

from __future__ import annotations

from gpudeck.errors import GpudeckError, InvalidError
from gpudeck.features import collecting, master, settings, worker
from gpudeck.features.rules import patterns
from gpudeck.features.settings import Settings
from gpudeck.features.sources import reading
from gpudeck.kube.client import Client


async def run(given: Settings) -> None:
    """Run until cancelled. Raises GpudeckError for settings that cannot work."""
    _check(given)
    if given.print_only:
        worker.show(given)
        return
    try:
        async with await Client.connect(given.kubeconfig) as api:
            if given.role == "worker":
                await worker.Worker(given, api).run()
            elif given.role == "master":
                await master.Master(given, api).run()
            else:
                await collecting.Collector(given, api).run()
    except* GpudeckError as group:
        raise _first(group) from group


def _first(group: BaseExceptionGroup[GpudeckError]) -> GpudeckError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _check(given: Settings) -> None:
    if given.role not in settings.ROLES:
        _refuse("ROLE", given.role, " or ".join(settings.ROLES))
    if given.role == "worker" and not given.node_name:
        _refuse("--node-name", given.node_name, "the name of this process's Node")
    for name in given.sources:
        if name not in reading.SOURCES:
            _refuse("--sources", name, ", ".join(reading.SOURCES))
    if given.label_whitelist:
        patterns.compiled(given.label_whitelist, "--label-whitelist")


def _refuse(field: str, value: str, allowed: str) -> None:
    raise InvalidError(
        f"{field}: {value!r} is not valid; allowed: {allowed}", field=field, allowed=allowed
    )
