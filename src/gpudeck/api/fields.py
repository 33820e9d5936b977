# SPDX-License-Identifier: Apache-2.0
"""The fields of a document that people write, each with its path, and what may stand there.

Pure; used by the readers of configs. A wrong value is refused with its path, and a key that is
not known is refused as well: it is a typing mistake that would else do nothing (case-01).
Reading goes on behind what is wrong, so that `read` names all of it at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from gpudeck import errors
from gpudeck.errors import InvalidError

T = TypeVar("T")
D = TypeVar("D")
_LONGEST = 80
"""Characters of a key that a path shows."""


@dataclasses.dataclass(frozen=True)
class Document:
    """What the fields of one document share."""

    reason: str
    name: str
    """What the whole of it is called where no path can be."""
    hints: Mapping[str, str]
    """Where keys belong that are often put elsewhere."""
    wrong: list[InvalidError] = dataclasses.field(default_factory=list)
    """What was found to be wrong so far."""

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Note what is wrong, and go on."""
        try:
            yield
        except InvalidError as error:
            self.wrong.append(error)


def read(
    value: Any,
    reader: Callable[[Field], T],
    *,
    reason: str,
    path: str = "",
    name: str = "the config",
    hints: Mapping[str, str] | None = None,
) -> T:
    """What `reader` makes of a document, or of what stands at `path` of one.

    Raises InvalidError that names every wrong field, its value and what is allowed.
    """
    document = Document(reason, name, hints or {})
    try:
        found = reader(Field(value, path, document))
    except InvalidError as error:
        raise errors.together([*document.wrong, error]) from error
    if document.wrong:
        raise errors.together(document.wrong)
    return found


class Field:
    """A value of the document. `path` is `sharing.timeSlicing.resources[0].replicas`."""

    def __init__(self, value: Any, path: str, document: Document) -> None:
        self.value = value
        self.path = path
        self.document = document

    def refuse(self, allowed: str) -> InvalidError:
        """The error that this value is not what may stand here."""
        where = self.path or self.document.name
        return errors.not_valid(where, self.value, allowed, reason=self.document.reason)

    def attempt(self, reader: Callable[[Field], T], otherwise: D) -> T | D:
        """What `reader` makes of the value; `otherwise`, and a note, where it is wrong."""
        with self.document.noting():
            return reader(self)
        return otherwise

    def instead(self, value: Any) -> Field:
        """Another value at this place."""
        return Field(value, self.path, self.document)

    def mapping(self, *keys: str) -> Parts:
        """The fields of a mapping that are set; null is as if it were not there.

        Without `keys` it may have any.
        """
        if self.value is None and keys:
            return Parts(self)
        if not isinstance(self.value, dict):
            raise self.refuse(f"a mapping with {', '.join(keys)}" if keys else "a mapping")
        parts = Parts(self)
        for key, content in self.value.items():
            if keys and key not in keys:
                self.document.wrong.append(self._unknown(key, content, keys))
            elif content is not None:
                parts[key] = self.below(key)
        return parts

    def entries(self, allowed: str, *, names: str) -> Iterator[tuple[str, Field]]:
        """The names that people chose in a mapping, and what is below each."""
        if not isinstance(self.value, dict):
            raise self.refuse(allowed)
        for key, content in self.value.items():
            if isinstance(key, str) and key:
                shown = errors.cut(key, _LONGEST)
                yield key, Field(content, f'{self.path}["{shown}"]', self.document)
            else:
                wrong = Field(key, f"{self.path}: {names}", self.document)
                self.document.wrong.append(wrong.refuse("a text; quote it"))

    def items(self, allowed: str) -> Iterator[Field]:
        """The elements of a list."""
        if not isinstance(self.value, list):
            raise self.refuse(allowed)
        for index, content in enumerate(self.value):
            yield Field(content, f"{self.path}[{index}]", self.document)

    def each(self, reader: Callable[[Field], T], allowed: str) -> tuple[T, ...]:
        """What `reader` makes of the elements of a list; those that are wrong are noted."""
        found = []
        for field in self.items(allowed):
            with self.document.noting():
                found.append(reader(field))
        return tuple(found)

    def boolean(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.refuse("true or false")
        return self.value

    def text(self, allowed: str = "a text") -> str:
        if not isinstance(self.value, str) or not self.value:
            raise self.refuse(allowed)
        return self.value

    def exactly(self, value: str) -> None:
        if self.value != value:
            raise self.refuse(value)

    def matching(self, pattern: re.Pattern[str], allowed: str) -> str:
        if not isinstance(self.value, str) or not pattern.fullmatch(self.value):
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

    def below(self, key: object) -> Field:
        """The field of a key, whether it is set or not."""
        value = self.value.get(key) if isinstance(self.value, dict) else None
        shown = errors.cut(str(key), _LONGEST)
        return Field(value, f"{self.path}.{shown}" if self.path else shown, self.document)

    def _unknown(self, key: object, content: object, keys: tuple[str, ...]) -> InvalidError:
        wrong = self.below(key)
        hint = self.document.hints.get(str(key), "")
        known = f"the keys {', '.join(keys)}"
        if hint and hint != wrong.path:
            known += f"; {key} belongs to {hint}"
        # One without a value is there all the same.
        return wrong.instead("null" if content is None else content).refuse(known)


class Parts(dict[str, Field]):
    """The fields of a mapping that are set, by key."""

    def __init__(self, owner: Field) -> None:
        super().__init__()
        self._owner = owner

    def read(self, key: str, reader: Callable[[Field], T], otherwise: D) -> T | D:
        """What `reader` makes of a field; `otherwise` where it is not set, or wrong."""
        return self[key].attempt(reader, otherwise) if key in self else otherwise

    def need(self, key: str, reader: Callable[[Field], T], otherwise: D) -> T | D:
        """As `read`, for a field that must be set: `reader` refuses None."""
        return self._owner.below(key).attempt(reader, otherwise)

    def below(self, key: str, *keys: str) -> Parts:
        """The fields of a mapping in this one; none where it is not set, or wrong."""
        nothing = Parts(self._owner.below(key))
        return self.read(key, lambda field: field.mapping(*keys), nothing)
