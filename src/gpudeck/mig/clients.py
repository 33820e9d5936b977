# SPDX-License-Identifier: Apache-2.0
"""Services of the host that have its cards open: which they are, as a file says.

The format is that of the `clients.yaml` which the GPU operator's mig-manager reads, version
v1: a list of systemd units. Pure. mig-manager has it from a ConfigMap, `gpudeck mig` from a
file of the host; both stop those that run while they change cards.
"""

from __future__ import annotations

import re

from gpudeck.api import documents, fields
from gpudeck.api.fields import Field
from gpudeck.errors import InvalidError

KEY = "clients.yaml"
"""What such a file is called, as the key of a ConfigMap too."""
REASON = "GpuClientsInvalid"
VERSION = "v1"
_UNITS = "systemd-services"
_FIELDS = ("version", _UNITS)
_UNIT = re.compile(
    r"[A-Za-z0-9:_.@\\][-A-Za-z0-9:_.@\\]{0,240}\.(?:service|socket|timer|path|target)"
)


def read(where: str, text: str) -> tuple[str, ...]:
    """Return the units that a text lists; `where` is what errors call its place.

    Raises InvalidError by all fields that are wrong.
    """
    try:
        loaded = documents.read(text, KEY, reason=REASON)
        return fields.read(loaded, _units, reason=REASON, name=KEY)
    except InvalidError as error:
        raise error.inside(where) from error


def _units(top: Field) -> tuple[str, ...]:
    if not isinstance(top.value, dict):
        raise top.refuse(f"a mapping with {', '.join(_FIELDS)}")
    found = top.mapping(*_FIELDS)
    found.need("version", lambda field: field.exactly(VERSION), None)
    return found.read(_UNITS, _listed, ())


def _listed(field: Field) -> tuple[str, ...]:
    allowed = "the full name of a systemd unit, e.g. nvidia-dcgm.service"
    units = field.each(lambda each: each.matching(_UNIT, allowed), "a list of systemd units")
    return tuple(dict.fromkeys(units))
