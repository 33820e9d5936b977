# SPDX-License-Identifier: Apache-2.0
"""One place in a document: its value and its path, and what may stand there.

Pure; used by `reading`. A wrong value is refused with its path, and a key that is
not asked for is refused as well: it is a typing mistake that would else do nothing
(case-01).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from gpudeck import errors
from gpudeck.errors import InvalidError

REASON = "PluginConfigInvalid"


class Field:
    """A value of the document. `path` is `sharing.timeSlicing.resources[0].replicas`.

    A kind of document with another `reason` has a class of its own.
    """

    reason = REASON

    def __init__(self, value: Any, path: str, hints: Mapping[str, str]) -> None:
        self.value = value
        self.path = path
        self._hints = hints

    def refuse(self, allowed: str) -> InvalidError:
        """The error that this value is not what may stand here."""
        error = errors.not_valid(self.path or "the config", self.value, allowed, reason=self.reason)
        error.field = self.path
        return error

    def mapping(self, *keys: str) -> dict[str, Field]:
        """The fields of a mapping that are set, by key; null is as if it were not there."""
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            raise self.refuse(f"a mapping with {', '.join(keys)}")
        for key, content in self.value.items():
            if key not in keys:
                raise self._unknown(key, content, keys)
        return {
            key: type(self)(content, self._below(key), self._hints)
            for key, content in self.value.items()
            if content is not None
        }

    def items(self, allowed: str) -> Iterator[Field]:
        """The elements of a list."""
        if not isinstance(self.value, list):
            raise self.refuse(allowed)
        for index, content in enumerate(self.value):
            yield type(self)(content, f"{self.path}[{index}]", self._hints)

    def boolean(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.refuse("true or false")
        return self.value

    def text(self, allowed: str = "a text") -> str:
        if not isinstance(self.value, str) or not self.value:
            raise self.refuse(allowed)
        return self.value

    def whole(self, *, least: int, most: float = math.inf, allowed: str) -> int:
        # In Python a boolean is a number.
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.refuse(allowed)
        if not least <= self.value <= most:
            raise self.refuse(allowed)
        return self.value

    def word(self, words: type[Any]) -> Any:
        """A member of an enumeration of texts."""
        try:
            # An enumeration spells out what is no member of it, however large that is.
            return words(self.value if isinstance(self.value, str) else "")
        except ValueError as error:
            raise self.refuse(", ".join(each.value for each in words)) from error

    def _below(self, key: object) -> str:
        return f"{self.path}.{key}" if self.path else str(key)

    def _unknown(self, key: object, content: object, keys: tuple[str, ...]) -> InvalidError:
        wrong = type(self)(content, self._below(key), self._hints)
        hint = self._hints.get(str(key), "")
        known = f"the keys {', '.join(keys)}"
        if hint and hint != wrong.path:
            return wrong.refuse(f"{known}; {key} belongs to {hint}")
        return wrong.refuse(known)
