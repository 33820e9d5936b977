# SPDX-License-Identifier: Apache-2.0
"""Cut the ties between a cached object and the answer it was decoded from.

A `msgspec.Raw` field is a view of the whole message: kept in a cache, a 100-byte
opaque config would hold a list page of a megabyte. `plan` looks at a type once
and returns what copies its Raw fields in place, or None if it has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect


def plan(type_: type) -> Callable[[Any], None] | None:
    """Return a function that makes objects of `type_` independent, None if they are already."""
    return _detach if _holds_raw(inspect.type_info(type_), set()) else None


def _holds_raw(info: inspect.Type, seen: set[type]) -> bool:
    if isinstance(info, inspect.RawType):
        return True
    if isinstance(info, inspect.StructType):
        if info.cls in seen:
            return False
        seen.add(info.cls)
        return any(_holds_raw(field.type, seen) for field in info.fields)
    return any(_holds_raw(part, seen) for part in _parts(info))


def _parts(info: inspect.Type) -> list[inspect.Type]:
    if isinstance(info, inspect.UnionType):
        return list(info.types)
    if isinstance(info, inspect.DictType):
        return [info.value_type]
    if isinstance(info, inspect.ListType | inspect.VarTupleType):
        return [info.item_type]
    return []


def _detach(value: Any) -> None:
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            part = getattr(value, name)
            if isinstance(part, msgspec.Raw):
                setattr(value, name, part.copy())
            else:
                _detach(part)
    elif isinstance(value, list | tuple):
        for part in value:
            _detach(part)
    elif isinstance(value, dict):
        for part in value.values():
            _detach(part)
