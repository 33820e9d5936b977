# SPDX-License-Identifier: Apache-2.0
"""Functions of Sprig on lists, maps and defaults, which node-feature-discovery has from v0.18 on.

What they make is bounded: a list that holds itself twice, and so on, could else not be written.
What was found of the node is never changed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from gpudeck.features.rules import effort
from gpudeck.features.templates.values import is_true, shown

_MOST = 10_000
"""Values in one list or map, those in its lists and maps included."""
_DEEPEST = 20


T = TypeVar("T")


class _Map(dict[str, Any]):
    """A map that a template has made, and may change."""


def _bounded(value: T) -> T:
    count = sum(1 for _ in itertools.islice(_walked(value, 0), _MOST + 1))
    effort.spend(count)
    if count > _MOST:
        raise ValueError(f"a list or map holds more than {_MOST} values")
    return value


def _walked(value: Any, depth: int) -> Iterator[Any]:
    if depth > _DEEPEST:
        raise ValueError(f"lists and maps stand in each other more than {_DEEPEST} times")
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in parts:
        yield each
        yield from _walked(each, depth + 1)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{shown(value)} is no list")
    return value


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is no map")
    return value


def _end(value: Any, index: int) -> Any:
    found = _list(value)
    return found[index] if found else None


def _unique(value: Any) -> list[Any]:
    kept: list[Any] = []
    for each in _list(value):
        effort.spend(len(kept) // 16)  # So many are compared in the time of a step.
        if each not in kept:
            kept.append(each)
    return kept


def _chunked(size: Any, value: Any) -> list[list[Any]]:
    if not isinstance(size, int) or size < 1:
        raise ValueError("chunk takes a size of 1 or more")
    found = _list(value)
    return [found[place : place + size] for place in range(0, len(found), size)]


def _made_map(*pairs: Any) -> _Map:
    """A map of names and values; as Sprig, a last name without a value has an empty one."""
    even = [*pairs, ""] if len(pairs) % 2 else pairs
    return _bounded(_Map(zip(map(shown, even[::2]), even[1::2], strict=True)))


def _set(value: Any, name: Any, new: Any) -> _Map:
    if not isinstance(value, _Map):
        raise ValueError("set changes only maps that dict made")
    value[shown(name)] = new
    return _bounded(value)


def _unset(value: Any, name: Any) -> _Map:
    if not isinstance(value, _Map):
        raise ValueError("unset changes only maps that dict made")
    value.pop(shown(name), None)
    return value


def _merged(*values: Any) -> _Map:
    """The values of the first that has a name are valid."""
    found = _Map()
    for each in reversed(values):
        found.update(_dict(each))
    return _bounded(found)


def _dug(*path: Any) -> Any:
    """The value at the end of a path of names, else what stands before the map."""
    *names, other, value = path
    for name in names:
        if not isinstance(value, dict) or name not in value:
            return other
        value = value[name]
    return value


def _kind(value: Any) -> str:
    kinds = {str: "string", bool: "bool", int: "int", float: "float64", list: "slice"}
    return "map" if isinstance(value, dict) else kinds.get(type(value), "invalid")


def _fail(message: Any) -> None:
    raise ValueError(shown(message))


def _parsed(text: Any) -> Any:
    try:
        return _bounded(json.loads(shown(text)))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{shown(text)[:40]!r} is not JSON") from error


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


CALLABLE: dict[str, Callable[..., Any]] = {
    "all": lambda *values: all(map(is_true, values)),
    "any": lambda *values: any(map(is_true, values)),
    "append": lambda value, new: _bounded([*_list(value), new]),
    "chunk": _chunked,
    "coalesce": lambda *values: next((each for each in values if is_true(each)), None),
    "compact": lambda value: [each for each in _list(value) if is_true(each)],
    "concat": lambda *values: _bounded([each for value in values for each in _list(value)]),
    "deepEqual": lambda first, second: first == second,
    "default": lambda other, value=None: value if is_true(value) else other,
    "dict": _made_map,
    "dig": _dug,
    "empty": lambda value: not is_true(value),
    "fail": _fail,
    "first": lambda value: _end(value, 0),
    "fromJson": _parsed,
    "get": lambda value, name: _dict(value).get(shown(name), ""),
    "has": lambda part, value: part in _list(value),
    "hasKey": lambda value, name: name in _dict(value),
    "initial": lambda value: _list(value)[:-1],
    "keys": lambda *values: sorted(name for value in values for name in _dict(value)),
    "kindIs": lambda kind, value: _kind(value) == kind,
    "kindOf": _kind,
    "last": lambda value: _end(value, -1),
    "list": lambda *values: _bounded([*values]),
    "merge": _merged,
    "omit": lambda value, *names: _Map(
        {name: each for name, each in _dict(value).items() if name not in names}
    ),
    "pick": lambda value, *names: _Map(
        {name: each for name, each in _dict(value).items() if name in names}
    ),
    "pluck": lambda name, *values: [_dict(each)[name] for each in values if name in _dict(each)],
    "prepend": lambda value, new: _bounded([new, *_list(value)]),
    "rest": lambda value: _list(value)[1:],
    "reverse": lambda value: _list(value)[::-1],
    "set": _set,
    "sortAlpha": lambda value: sorted(map(shown, _list(value))),
    "ternary": lambda yes, no, value: yes if is_true(value) else no,
    "toJson": _written,
    "toStrings": lambda value: [shown(each) for each in _list(value)],
    "uniq": _unique,
    "unset": _unset,
    "values": lambda *values: [
        value[name] for value in map(_dict, values) for name in sorted(value)
    ],
    "without": lambda value, *gone: [each for each in _list(value) if each not in gone],
}
