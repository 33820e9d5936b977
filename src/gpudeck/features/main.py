# SPDX-License-Identifier: Apache-2.0
"""The process features: starts the part of its role. Each part is one group of tasks."""

from __future__ import annotations

import importlib

from gpudeck import errors
from gpudeck.errors import GpudeckError
from gpudeck.features import settings
from gpudeck.features.rules import patterns
from gpudeck.features.settings import Settings
from gpudeck.kube.client import Client

_PARTS = {
    "worker": ("worker", "Worker"),
    "master": ("master", "Master"),
    "gc": ("collecting", "Collector"),
}
"""Module and class of each role: a role does not load the others."""


async def run(given: Settings) -> None:
    """Run until cancelled. Raises GpudeckError for settings that cannot work."""
    _check(given)
    module, part = _PARTS[given.role]
    role = importlib.import_module(f"gpudeck.features.{module}")
    if given.print_only:
        role.show(given)
        return
    try:
        async with await Client.connect(given.kubeconfig) as api:
            await getattr(role, part)(given, api).run()
    except* GpudeckError as group:
        raise errors.first(group) from group


def _check(given: Settings) -> None:
    if given.role not in settings.ROLES:
        _refuse("ROLE", given.role, " or ".join(settings.ROLES))
    if given.print_only and given.role != "worker":
        _refuse("--print-only", "true", "false, but for the worker")
    if given.role == "worker" and not given.node_name:
        _refuse("--node-name", given.node_name, "the name of this process's Node")
    if given.role == "gc" and given.config:
        _refuse("--config", given.config, "none; the role gc has no file")
    for flag, sources in (("--sources", given.sources), ("--label-sources", given.label_sources)):
        for name in sources:
            if name not in settings.SOURCES:
                _refuse(flag, name, ", ".join(settings.SOURCES))
    if given.label_whitelist:
        patterns.compiled(given.label_whitelist, "--label-whitelist")


def _refuse(field: str, value: str, allowed: str) -> None:
    raise errors.not_valid(field, value, allowed)
