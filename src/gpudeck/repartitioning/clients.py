# SPDX-License-Identifier: Apache-2.0
"""Services of the host that have its cards open: which they are, as a ConfigMap says.

The format is that of the `clients.yaml` which the GPU operator's mig-manager reads, version
v1: a list of systemd units. Pure; `stepping` decides when they are stopped and started.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from gpudeck import errors
from gpudeck.api import documents, fields
from gpudeck.api.fields import Field
from gpudeck.errors import InvalidError

KEY = "clients.yaml"
"""The key of a ConfigMap that holds such a file."""
REASON = "GpuClientsInvalid"
VERSION = "v1"
_UNITS = "systemd-services"
_FIELDS = ("version", _UNITS)
_UNIT = re.compile(
    r"[A-Za-z0-9:_.@\\][-A-Za-z0-9:_.@\\]{0,240}\.(?:service|socket|timer|path|target)"
)


def read(name: str, text: str | None) -> tuple[str, ...]:
    """Return the units that the ConfigMap of that name lists; `text` is that of its key.

    Raises NotFoundError where there is none, InvalidError by all fields that are wrong.
    """
    where = f"ConfigMap {name}"
    if text is None:
        raise errors.NotFoundError(
            f"{where}: it is not there, or has no key {KEY}; it is to hold the services of the "
            "host that have cards open",
            reason="GpuClientsMissing",
        )
    try:
        return fields.read(_loaded(text), _units, reason=REASON, name=KEY)
    except InvalidError as error:
        raise error.inside(where) from error


def _loaded(text: str) -> Any:
    try:
        return documents.load(text)
    except yaml.YAMLError as error:
        raise errors.not_valid(
            KEY, documents.shown(error), "a YAML document", reason=REASON
        ) from error


def _units(top: Field) -> tuple[str, ...]:
    if not isinstance(top.value, dict):
        raise top.refuse(f"a mapping with {', '.join(_FIELDS)}")
    found = top.mapping(*_FIELDS)
    found.need("version", _version, None)
    return found.read(_UNITS, _listed, ())


def _version(field: Field) -> None:
    if field.value != VERSION:
        raise field.refuse(VERSION)


def _listed(field: Field) -> tuple[str, ...]:
    allowed = "the full name of a systemd unit, e.g. nvidia-dcgm.service"
    units = field.each(lambda each: each.matching(_UNIT, allowed), "a list of systemd units")
    return tuple(dict.fromkeys(units))
