# SPDX-License-Identifier: Apache-2.0
"""Server-side apply on plain dicts: who owns which leaf field, and what an apply changes.

Pure. Good enough for the objects of gpudeck: maps are granular, lists are atomic
but for the list maps named in `LIST_KEYS`. Checked against the real API server
by tests/contract/kube. Model: k8s.io/apimachinery 0.37, structured-merge-diff 6.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator
from typing import Any

Path = tuple[Any, ...]
Owner = tuple[str, str, str]
"""Manager, operation (Apply or Update), subresource."""

LIST_KEYS: dict[str, tuple[str, ...]] = {
    "conditions": ("type",),
    "ownerReferences": ("uid",),
    "containers": ("name",),
}
"""Lists that are maps, by field name."""
PATH_KEYS: dict[Path, tuple[str, ...]] = {
    ("status", "devices"): ("driver", "pool", "device", "shareID"),
    ("status", "occupancy", "claims"): ("uid", "device", "shareID"),
    ("status", "occupancy", "plugin"): ("namespace", "pod", "container", "resource", "device"),
    ("status", "extendedResources"): ("resource",),
}
"""Lists that are maps at one place only: of ResourceClaims, of PhysicalGPUs."""
SETS = frozenset({"finalizers"})
_IDENTITY = {
    ("apiVersion",),
    ("kind",),
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("metadata", "uid"),
    ("metadata", "resourceVersion"),
    ("metadata", "generation"),
    ("metadata", "creationTimestamp"),
    ("metadata", "managedFields"),
}


class ItemKey(tuple[tuple[str, Any], ...]):
    """Names an item of a list map within a path."""


def keys_of(field: str, path: Path) -> tuple[str, ...]:
    """Return the key fields of the list at `path`, () for an atomic one."""
    if path in PATH_KEYS:
        return PATH_KEYS[path]
    return LIST_KEYS.get(field, ())


def item_key(item: dict[str, Any], keys: tuple[str, ...]) -> ItemKey:
    """Return the name of a list map's item; absent key fields do not count."""
    return ItemKey((key, item[key]) for key in keys if key in item)


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Give every leaf below `value`: scalars, atomic lists, empty maps, items of sets."""
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from _field_leaves(name, part, (*path, name))
    elif path:
        yield path, value


def _field_leaves(name: str, part: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    keys = keys_of(name, path)
    if isinstance(part, list) and keys and part:
        for item in part:
            yield from leaves(item, (*path, item_key(item, keys)))
    elif isinstance(part, list) and name in SETS:
        for item in part:
            yield (*path, ItemKey((("", item),))), item
    else:
        yield from leaves(part, path)


def owned(value: dict[str, Any]) -> dict[Path, Any]:
    """Return the leaves of an object that somebody can own."""
    return {path: leaf for path, leaf in leaves(value) if path not in _IDENTITY}


def read(value: Any, path: Path) -> tuple[bool, Any]:
    """Return whether there is something at `path`, and what."""
    for step in path:
        if isinstance(step, ItemKey):
            found = _find(value, step)
            if found is None:
                return False, None
            value = found[1]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return False, None
    return True, value


def write(value: dict[str, Any], path: Path, leaf: Any) -> None:
    """Set the leaf at `path`, making the maps and list items on the way."""
    here: Any = value
    for step, following in itertools.pairwise(path):
        empty: Any = [] if isinstance(following, ItemKey) else {}
        here = _enter(here, step, empty)
    last = path[-1]
    if isinstance(last, ItemKey):
        if _find(here, last) is None:
            here.append(copy.deepcopy(leaf))
    else:
        here[last] = copy.deepcopy(leaf)


def _enter(here: Any, step: Any, empty: Any) -> Any:
    if isinstance(step, ItemKey):
        found = _find(here, step)
        if found is None:
            here.append(dict(step))
            return here[-1]
        return found[1]
    if not isinstance(here.get(step), type(empty)):
        here[step] = empty
    return here[step]


def remove(value: Any, path: Path) -> None:
    """Remove the leaf at `path`, and the maps and items that this leaves empty."""
    step, rest = path[0], path[1:]
    if isinstance(step, ItemKey):
        found = _find(value, step)
        if found is None:
            return
        position, item = found
        if rest:
            remove(item, rest)
        if not rest or not item:
            del value[position]
    elif isinstance(value, dict) and step in value:
        if rest:
            remove(value[step], rest)
        if not rest or value[step] in ({}, []):
            del value[step]


def _find(items: Any, key: ItemKey) -> tuple[int, Any] | None:
    for position, item in enumerate(items if isinstance(items, list) else ()):
        if key and key[0][0] == "":
            if item == key[0][1]:
                return position, item
        elif isinstance(item, dict) and all(item.get(name) == wanted for name, wanted in key):
            return position, item
    return None


class ConflictingError(Exception):
    """Another manager owns fields that an apply without force would change."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self.fields = fields
        """Manager and dotted path of each."""
        super().__init__(f"Apply failed with {len(fields)} conflicts")


class Ownership:
    """Who owns the leaves of one object."""

    def __init__(self) -> None:
        self.of: dict[Owner, set[Path]] = {}

    def copy(self) -> Ownership:
        """Return an independent copy."""
        twin = Ownership()
        twin.of = {owner: set(paths) for owner, paths in self.of.items()}
        return twin

    def apply(
        self, live: dict[str, Any], wanted: dict[str, Any], owner: Owner, *, force: bool
    ) -> dict[str, Any]:
        """Return the object after `owner` applied `wanted`; ConflictingError without force."""
        result = copy.deepcopy(live)
        applied = owned(wanted)
        changed = {path for path, leaf in applied.items() if not _stands(live, path, leaf)}
        conflicts = [
            (other[0], dotted(path))
            for other, paths in self.of.items()
            if other != owner
            for path in sorted(paths & changed, key=str)
        ]
        if conflicts and not force:
            raise ConflictingError(conflicts)
        self._take(owner, changed)
        for path in sorted(self.of.get(owner, set()) - applied.keys(), key=_names_its_item):
            if not any(path in paths for other, paths in self.of.items() if other != owner):
                # An item without its keys is none: with them goes what nobody else owns of it.
                remove(result, path[:-1] if _names_its_item(path) else path)
        for path, leaf in applied.items():
            if not _stands(result, path, leaf):
                write(result, path, leaf)
        self.of[owner] = set(applied)
        return result

    def update(self, before: dict[str, Any], after: dict[str, Any], owner: Owner) -> None:
        """Note that `owner` changed an object by other means than apply."""
        old, new = owned(before), owned(after)
        changed = {path for path, leaf in new.items() if path not in old or old[path] != leaf}
        gone = old.keys() - new.keys()
        for paths in self.of.values():
            paths.difference_update(gone)
        self._take(owner, changed)
        if changed:
            self.of.setdefault(owner, set()).update(changed)

    def managed_fields(self) -> list[dict[str, Any]]:
        """`metadata.managedFields`, as the API server gives it, without times."""
        found = []
        for (manager, operation, subresource), paths in self.of.items():
            fields: dict[str, Any] = {}
            for path in paths:
                here = fields
                for step in path:
                    here = here.setdefault(_field(step), {})
            entry = {"manager": manager, "operation": operation, "fieldsType": "FieldsV1"}
            more = {"subresource": subresource} if subresource else {}
            found += [{**entry, **more, "fieldsV1": fields}] if fields else []
        return found

    def _take(self, owner: Owner, paths: set[Path]) -> None:
        for other, theirs in self.of.items():
            if other != owner:
                theirs.difference_update(paths)


def _stands(value: dict[str, Any], path: Path, leaf: Any) -> bool:
    """Whether an object says `leaf` at `path`; an empty map asks only for any map."""
    found, known = read(value, path)
    return found and (isinstance(known, dict) if leaf == {} else known == leaf)


def _names_its_item(path: Path) -> bool:
    """Whether the leaf is a key of its list item, without which the item is not found again."""
    return any(isinstance(step, ItemKey) and path[-1] in dict(step) for step in path[-2:-1])


def _field(step: Any) -> str:
    if not isinstance(step, ItemKey):
        return f"f:{step}"
    return f"v:{json.dumps(step[0][1])}" if step[0][0] == "" else f"k:{json.dumps(dict(step))}"


def dotted(path: Path) -> str:
    """Write a path as the API server's messages do, nearly."""
    text = ""
    for step in path:
        if isinstance(step, ItemKey):
            text += "[" + ",".join(f'{name}="{value}"' for name, value in step) + "]"
        else:
            text += f".{step}"
    return text
