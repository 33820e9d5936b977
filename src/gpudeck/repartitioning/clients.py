# SPDX-License-Identifier: Apache-2.0
"""Services of the host that have its cards open: which they are, as a ConfigMap says.

The format is that of the `clients.yaml` which the GPU operator's mig-manager reads, version
v1: a list of systemd units. Pure; `stepping` decides when they are stopped and started.
"""

from __future__ import annotations

import re

import yaml

from gpudeck import errors
from gpudeck.api import documents

KEY = "clients.yaml"
"""The key of a ConfigMap that holds such a file."""
VERSION = "v1"
_UNITS = "systemd-services"
_FIELDS = ("version", _UNITS)
_UNIT = re.compile(
    r"[A-Za-z0-9:_.@\\][-A-Za-z0-9:_.@\\]{0,240}\.(?:service|socket|timer|path|target)"
)


def read(name: str, text: str | None) -> tuple[str, ...]:
    """Return the units that the ConfigMap of that name lists; `text` is that of its key.

    Raises NotFoundError where there is none, InvalidError by field where it is wrong.
    """
    where = f"ConfigMap {name}"
    if text is None:
        raise errors.NotFoundError(
            f"{where}: it is not there, or has no key {KEY}; it is to hold the services of the "
            "host that have cards open",
            reason="GpuClientsMissing",
        )
    try:
        found = documents.load(text)
    except yaml.YAMLError as error:
        shown = " ".join(str(error).split())
        raise _refusal(where, KEY, shown, "a YAML document") from error
    if not isinstance(found, dict):
        raise _refusal(where, KEY, found, f"a mapping of {', '.join(_FIELDS)}")
    for field in found:
        if field not in _FIELDS:
            raise _refusal(where, str(field), found[field], f"no field but {', '.join(_FIELDS)}")
    if found.get("version") != VERSION:
        raise _refusal(where, "version", found.get("version"), VERSION)
    units = found.get(_UNITS) or []
    if not isinstance(units, list):
        raise _refusal(where, _UNITS, units, "a list of systemd units")
    for index, unit in enumerate(units):
        if not isinstance(unit, str) or not _UNIT.fullmatch(unit):
            allowed = "the full name of a systemd unit, e.g. nvidia-dcgm.service"
            raise _refusal(where, f"{_UNITS}[{index}]", unit, allowed)
    return tuple(dict.fromkeys(units))


def _refusal(where: str, field: str, value: object, allowed: str) -> errors.InvalidError:
    return errors.InvalidError(
        f"{where}: {field}: {value!r} is not valid; allowed: {allowed}",
        reason="GpuClientsInvalid",
        field=field,
        allowed=allowed,
    )
