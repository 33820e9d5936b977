# SPDX-License-Identifier: Apache-2.0
"""Which PCI devices are cards: the ConfigMap gpu-supported-vendors, checked word by word.

Its key `vendors.yaml` holds `vendors` (PCI vendor id and the name that labels carry) and
`classes` (prefixes of the PCI class code). Pure; `main` follows the ConfigMap and keeps
the last good one when `parse` refuses the new one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from gpudeck import errors
from gpudeck.api import documents, fields
from gpudeck.api.fields import Field
from gpudeck.errors import InvalidError

KEY = "vendors.yaml"
REASON = "SupportedVendorsInvalid"
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

    Raises InvalidError with the path of each wrong field, its value and what is allowed. An
    unknown key is wrong: it is a typing mistake that would else do nothing.
    """
    unknown = sorted(set(content or ()) - {KEY})
    if unknown:
        raise _refusal(f"data.{unknown[0]}", unknown[0], f"the key {KEY} only")
    if not content or KEY not in content:
        raise _refusal("data", sorted(content or ()), f"the key {KEY}")
    document = documents.read(content[KEY], KEY, reason=REASON)
    if not isinstance(document, dict):
        raise _refusal(KEY, document, "a mapping with vendors and classes")
    try:
        return fields.read(document, _supported, reason=REASON)
    except InvalidError as error:
        raise error.inside(KEY) from error


def _supported(top: Field) -> Supported:
    found = top.mapping("vendors", "classes")
    return Supported(
        vendors=found.need("vendors", _vendors, {}), classes=found.need("classes", _classes, ())
    )


def _vendors(field: Field) -> dict[int, str]:
    allowed = "a list of at least one {id, name}"
    if not field.value:
        raise field.refuse(allowed)
    vendors: dict[int, str] = {}
    for each in field.items(allowed):
        with field.document.noting():
            found = each.mapping("id", "name")
            number = found.need("id", _id, None)
            name = found.need("name", _name, "")
            if number in vendors:
                raise each.below("id").refuse("each id once")
            if name in vendors.values():
                raise each.below("name").refuse("each name once")
            if number is not None and name:
                vendors[number] = name
    return vendors


def _classes(field: Field) -> tuple[str, ...]:
    allowed = "a list of at least one class"
    if not field.value:
        raise field.refuse(allowed)
    return field.each(_class, allowed)


def _id(field: Field) -> int:
    return int(field.matching(_ID, _ID_RULE), 16)


def _name(field: Field) -> str:
    return field.matching(_NAME, _NAME_RULE)


def _class(field: Field) -> str:
    return field.matching(_CLASS, _CLASS_RULE)


def _refusal(path: str, value: object, allowed: str) -> InvalidError:
    return errors.not_valid(path, value, allowed, reason=REASON)
