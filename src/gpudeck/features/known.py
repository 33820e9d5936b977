# SPDX-License-Identifier: Apache-2.0
"""What is known of a node, by feature: sources fill it, rules are matched with it."""

from __future__ import annotations

from collections.abc import Collection, Set
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

    def add(self, features: Features | None) -> None:
        """Add what a NodeFeature says: a later value of a name is the valid one.

        What but one of them says is taken as it is, which spares a copy of thousands of names.
        """
        if features is None:
            return
        for name, flags in (features.flags or {}).items():
            elements = (flags.elements or {}).keys()
            held = self.flags.get(name.lower())
            self.flags[name.lower()] = elements if held is None else held | elements
        for name, values in (features.attributes or {}).items():
            known = self.attributes.get(name.lower())
            new = values.elements or {}
            self.attributes[name.lower()] = new if known is None else {**known, **new}
        for name, things in (features.instances or {}).items():
            found = [each.attributes or {} for each in things.elements or []]
            self.instances[name.lower()] = [*self.instances.get(name.lower(), ()), *found]

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
