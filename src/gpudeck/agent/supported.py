# SPDX-License-Identifier: Apache-2.0
"""Which PCI devices are cards: the ConfigMap gpu-supported-vendors, checked word by word.

Its key `vendors.yaml` holds `vendors` (PCI vendor id and the name that labels carry) and
`classes` (prefixes of the PCI class code). Pure; `main` follows the ConfigMap and keeps
the last good one when `parse` refuses the new one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from gpudeck import errors
from gpudeck.api import documents
from gpudeck.errors import InvalidError

KEY = "vendors.yaml"
_ID = re.compile(r"[0-9a-f]{4}")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_CLASS = re.compile(r"[0-9a-f]{2}([0-9a-f]{2})?")
_ID_RULE = 'four hexadecimal digits in lower case, quoted, e.g. "10de"'
_NAME_RULE = "a DNS label: lower-case letters, digits and dashes, at most 63"
_CLASS_RULE = 'two or four hexadecimal digits in lower case, quoted, e.g. "03" or "0302"'


class Supported(msgspec.Struct, frozen=True):
    """Vendor names by PCI vendor id, in the order of the list, and class prefixes."""

    vendors: dict[int, str]
    classes: tuple[str, ...]

    def accepts(self, class_code: int, vendor: int) -> bool:
        """Whether a function of this 24-bit class and this vendor may be a card."""
        return vendor in self.vendors and f"{class_code:06x}".startswith(self.classes)


DEFAULT = Supported({0x10DE: "nvidia", 0x9999: "metax"}, ("03", "12"))
"""Display controllers and processing accelerators; used while there is no valid ConfigMap."""


def parse(content: Mapping[str, str] | None) -> Supported:
    """Read a ConfigMap's `data`.

    Raises InvalidError with the path of the first wrong field, its value and what is
    allowed. An unknown key is wrong: it is a typing mistake that would else do nothing.
    """
    unknown = sorted(set(content or ()) - {KEY})
    if unknown:
        raise _refusal(f"data.{unknown[0]}", unknown[0], f"the key {KEY} only")
    if not content or KEY not in content:
        raise _refusal("data", sorted(content or ()), f"the key {KEY}")
    document = _load(content[KEY])
    _keys(document, KEY, {"vendors", "classes"})
    return Supported(
        vendors=_vendors(document.get("vendors")), classes=_classes(document.get("classes"))
    )


def _load(text: str) -> dict[str, Any]:
    try:
        document = documents.load(text)
    except yaml.YAMLError as error:
        raise _refusal(KEY, " ".join(str(error).split()), "a YAML document") from error
    if not isinstance(document, dict):
        raise _refusal(KEY, document, "a mapping with vendors and classes")
    return document


def _vendors(value: Any) -> dict[int, str]:
    path = f"{KEY}: vendors"
    if not isinstance(value, list) or not value:
        raise _refusal(path, value, "a list of at least one {id, name}")
    vendors: dict[int, str] = {}
    for index, entry in enumerate(value):
        where = f"{path}[{index}]"
        if not isinstance(entry, dict):
            raise _refusal(where, entry, "a mapping with id and name")
        _keys(entry, where, {"id", "name"})
        number = int(_matching(entry.get("id"), f"{where}.id", _ID, _ID_RULE), 16)
        name = _matching(entry.get("name"), f"{where}.name", _NAME, _NAME_RULE)
        if number in vendors:
            raise _refusal(f"{where}.id", entry["id"], "each id once")
        if name in vendors.values():
            raise _refusal(f"{where}.name", name, "each name once")
        vendors[number] = name
    return vendors


def _classes(value: Any) -> tuple[str, ...]:
    path = f"{KEY}: classes"
    if not isinstance(value, list) or not value:
        raise _refusal(path, value, "a list of at least one class")
    return tuple(
        _matching(entry, f"{path}[{index}]", _CLASS, _CLASS_RULE)
        for index, entry in enumerate(value)
    )


def _keys(value: dict[Any, Any], path: str, allowed: set[str]) -> None:
    for key, content in value.items():
        if key not in allowed:
            keys = " and ".join(sorted(allowed))
            raise _refusal(f"{path}.{key}", content, f"the keys {keys} only")


def _matching(value: Any, path: str, pattern: re.Pattern[str], allowed: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _refusal(path, value, allowed)
    return value


def _refusal(path: str, value: object, allowed: str) -> InvalidError:
    return errors.not_valid(path, value, allowed, reason="SupportedVendorsInvalid")
