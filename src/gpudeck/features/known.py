# SPDX-License-Identifier: Apache-2.0
"""What is known of a node, by feature: sources fill it, rules are matched with it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from typing import TypeVar

import msgspec

from gpudeck.api.nodefeatures import (
    Attributes,
    Features,
    Flags,
    Instance,
    Instances,
    Nothing,
)

T = TypeVar("T")
Element = dict[str, str]
"""One thing: a flag's Name, a value's Name and Value, or an instance's attributes."""


class Known(msgspec.Struct):
    """All that is known of a node, by feature. What is held may be shared, and is not changed."""

    flags: dict[str, Set[str]] = msgspec.field(default_factory=dict)
    attributes: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    instances: dict[str, list[Element]] = msgspec.field(default_factory=dict)

    def lookup(self, reference: str) -> str | None:
        """The value of `<domain>.<feature>.<element>`; None if there is none."""
        parts = reference.split(".", 2)
        if len(parts) < 3:
            return None
        return self.attributes.get(f"{parts[0]}.{parts[1]}".lower(), {}).get(parts[2])

    def without(self, hidden: Collection[str]) -> Known:
        """The same without some features: by name, or `usb.*` for all that begin so."""
        names = {each.lower() for each in hidden if not each.endswith("*")}
        starts = tuple(each[:-1].lower() for each in hidden if each.endswith("*"))

        def kept(found: dict[str, T]) -> dict[str, T]:
            return {
                name: part
                for name, part in found.items()
                if name not in names and not name.startswith(starts)
            }

        return Known(kept(self.flags), kept(self.attributes), kept(self.instances))

    def wire(self) -> Features:
        """The same as a NodeFeature carries it, sorted, so that equal finds are equal text."""
        return Features(
            flags={
                name: Flags(elements={flag: Nothing() for flag in sorted(flags)})
                for name, flags in sorted(self.flags.items())
            },
            attributes={
                name: Attributes(elements=dict(sorted(values.items())))
                for name, values in sorted(self.attributes.items())
            },
            instances={
                name: Instances(elements=[Instance(attributes=each) for each in things])
                for name, things in sorted(self.instances.items())
            },
        )


def gathered(given: Iterable[Features | None]) -> Known:
    """All that NodeFeatures say: of two values of a name the later is the valid one.

    What but one of them says is taken as it is, which spares a copy of thousands of names.
    """
    flags: dict[str, list[dict[str, Nothing]]] = {}
    attributes: dict[str, list[dict[str, str]]] = {}
    instances: dict[str, list[Element]] = {}
    for each in given:
        if each is None:
            continue
        for name, names in (each.flags or {}).items():
            flags.setdefault(name.lower(), []).append(names.elements or {})
        for name, values in (each.attributes or {}).items():
            attributes.setdefault(name.lower(), []).append(values.elements or {})
        for name, things in (each.instances or {}).items():
            found = (thing.attributes or {} for thing in things.elements or ())
            instances.setdefault(name.lower(), []).extend(found)
    return Known(
        {name: _merged(parts).keys() for name, parts in flags.items()},
        {name: _merged(parts) for name, parts in attributes.items()},
        instances,
    )


def _merged(parts: list[dict[str, T]]) -> dict[str, T]:
    if len(parts) == 1:
        return parts[0]
    return {name: value for part in parts for name, value in part.items()}
