# SPDX-License-Identifier: Apache-2.0
"""Reads groups: `.spec.gpu` of a NodeGroup, and the groups of the chart's values.

Pure. Defaults are those that Deckhouse documents. Where its documentation leaves out what
cards have (profiles of 100 GB and more, `+me`, `+gfx`), it is read all the same. What is
wrong is refused with the path of the field.
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
from collections.abc import Collection
from typing import Any

import msgspec

from gpudeck import errors
from gpudeck.api import documents, fields, labelselectors
from gpudeck.api import names as naming
from gpudeck.api.fields import Field
from gpudeck.api.labelselectors import Requirement
from gpudeck.api.nodegroups import NodeGroup
from gpudeck.api.resources import NODE_GROUP
from gpudeck.controller.nodegroups.groups import (
    DEFAULT,
    INVALID,
    Group,
    Selected,
    Sharing,
    Use,
    World,
    key_of,
)
from gpudeck.errors import InvalidError
from gpudeck.mig import configs

VALUES = "groups.yaml"
"""The key of the chart's ConfigMap with its own groups."""
CUSTOM = "custom"
"""The name in `partedConfig` of what `customConfigs` describes."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PROFILE = re.compile(r"([1-9][0-9]*g\.[1-9][0-9]*gb)(?:[+.]((?:me|gfx)(?:\.all)?)|(-me))?")
_MOST_PARTITIONS, _MOST_SLICES = 100, 7


def node_group(found: NodeGroup) -> Group | None:
    """Return the group; None for one that says nothing of GPUs.

    Raises InvalidError that names every wrong field.
    """
    gpu = found.spec.gpu if found.spec is not None else None
    if gpu is None:
        return None
    name = found.metadata.name
    use = _use(gpu, "spec.gpu", name)
    if use.mig_written:
        written = f"{NODE_GROUP.kind} {name}: {use.mig_written}"
        use = msgspec.structs.replace(use, mig_written=written)
    return Group(name=name, key=key_of(name), use=use)


def world(
    found: Collection[NodeGroup] | None, text: str, before: World
) -> tuple[World, dict[str, InvalidError]]:
    """Return all groups, and what is wrong with some: by the name of the NodeGroup, or by the
    path of the chart's value. `found` is None where nobody serves NodeGroups; `text` is the list
    of the chart's groups as YAML, or empty.

    A group that cannot be read stays as it was in `before`, for nodes that join it as well.
    """
    problems: dict[str, InvalidError] = {}
    keys = {DEFAULT}
    names = None if found is None else frozenset(each.metadata.name for each in found)
    node_groups: dict[str, Group | None] = {}
    for each in sorted(found or (), key=lambda found: found.metadata.name):
        name = each.metadata.name
        try:
            group = node_group(each)
            if group is not None:
                node_groups[name] = _taken(keys, group, "metadata.name")
        except InvalidError as error:
            node_groups[name] = before.node_groups.get(name)
            keys.add(key_of(name))
            problems[name] = error
    known = {each.name: each.group for each in before.selected}
    selected: list[Selected] = []
    entries = _values(text, problems)
    if entries is None:
        selected = [
            msgspec.structs.replace(each, group=_kept(keys, each.group)) for each in before.selected
        ]
    for index, entry in enumerate(entries or ()):
        path = f"nodeGroups[{index}]"
        try:
            name, selector = fields.read(entry, _head, reason=INVALID, path=path)
        except InvalidError as error:
            problems[path] = error
            continue
        try:
            group = Group(
                name=name, key=key_of(name), use=_use(entry.get("gpu"), f"{path}.gpu", name)
            )
            selected.append(Selected(name, selector, _taken(keys, group, f"{path}.name")))
        except InvalidError as error:
            kept = _kept(keys, known.get(name))
            selected.append(Selected(name, selector, kept, error.message))
            problems[path] = error
    made = World(
        node_groups=node_groups,
        selected=tuple(selected),
        names=names,
        refused={name: problems[name].message for name in node_groups if name in problems},
    )
    return made, problems


def _taken(keys: set[str], group: Group, path: str) -> Group:
    """Return the group itself. Raises InvalidError if another has its key."""
    if group.key in keys:
        allowed = "a name that no other group has"
        raise errors.not_valid(path, group.name, allowed, reason=INVALID)
    keys.add(group.key)
    return group


def _kept(keys: set[str], group: Group | None) -> Group | None:
    """Return the group as it was; None if another has taken its key since."""
    if group is None or group.key in keys:
        return None
    keys.add(group.key)
    return group


def _values(text: str, problems: dict[str, InvalidError]) -> list[Any] | None:
    try:
        found = documents.read(text or "[]", VALUES, reason=INVALID)
        return fields.read(found, _entries, reason=INVALID, name=VALUES)
    except InvalidError as error:
        problems[VALUES] = error
        return None


def _entries(top: Field) -> list[Any]:
    return [each.value for each in top.items("a list of {name, selector, gpu}")]


def _head(entry: Field) -> tuple[str, tuple[Requirement, ...]]:
    found = entry.mapping()
    return found.need("name", _name, ""), found.need("selector", _selector, ())


def _name(field: Field) -> str:
    return field.matching(_NAME, "small letters, digits and dashes, at most 63")


def _selector(field: Field) -> tuple[Requirement, ...]:
    return labelselectors.selector(field) or ()


def _use(gpu: Any, path: str, name: str) -> Use:
    return fields.read(gpu, functools.partial(_gpu, name), reason=INVALID, path=path)


def _gpu(name: str, field: Field) -> Use:
    found = field.mapping()
    sharing = found.need("sharing", _sharing, None)
    use = Use(sharing=Sharing.EXCLUSIVE)
    for each, (block, reader) in _BLOCKS.items():
        if each is sharing or (sharing is None and block in found):
            inner = found.get(block) or field.below(block).instead({})
            use = inner.attempt(functools.partial(reader, name), use)
        elif block in found:
            refusal = found[block].refuse(f"nothing while sharing is {sharing}")
            field.document.wrong.append(refusal)
    return use


def _sharing(field: Field) -> Sharing | None:
    return Sharing(field.word(Sharing))


def _exclusive(_: str, field: Field) -> Use:
    field.mapping()
    return Use(sharing=Sharing.EXCLUSIVE)


def _time_slicing(_: str, field: Field) -> Use:
    count = field.mapping().read("partitionCount", _partition_count, 4)
    return Use(sharing=Sharing.TIME_SLICING, partition_count=count)


def _partition_count(field: Field) -> int:
    return _whole(field, 1, _MOST_PARTITIONS)


def _mig(name: str, field: Field) -> Use:
    found = field.mapping()
    chosen = found.read("partedConfig", _config_name, "all-1g.5gb")
    if chosen == CUSTOM:
        config = found.need("customConfigs", _customs, ())
        return Use(
            sharing=Sharing.MIG,
            mig_config=custom_name(name, config),
            mig_custom=config,
            mig_written=field.below("customConfigs").path,
        )
    if "customConfigs" in found and found["customConfigs"].value:
        where = field.below("partedConfig").instead(chosen)
        raise where.refuse(f"{CUSTOM} where there are customConfigs")
    written = field.below("partedConfig").path
    return Use(sharing=Sharing.MIG, mig_config=chosen, mig_written=written)


def _config_name(field: Field) -> str:
    return field.matching(_LABEL, "the name of a MIG config, which is the value of a label")


def _customs(field: Field) -> configs.Config:
    allowed = "a list of at least one {index, slices}"
    if not field.value:
        raise field.refuse(allowed)
    entries: dict[int, configs.Entry] = {}
    for each in field.items(allowed):
        with field.document.noting():
            found = each.mapping()
            index = found.need("index", _index, -1)
            if index in entries and index >= 0:
                raise each.below("index").refuse("the number of each card once")
            counts = found.need("slices", _slices, {})
            entries[index] = configs.Entry(enabled=True, devices=(index,), counts=counts)
    return tuple(entries.values())


def _index(field: Field) -> int:
    return _whole(field, 0, None)


def _slices(field: Field) -> dict[str, int]:
    allowed = "a list of at least one {profile, count}"
    if not field.value:
        raise field.refuse(allowed)
    counts: dict[str, int] = {}
    for each in field.items(allowed):
        with field.document.noting():
            found = each.mapping()
            profile = found.need("profile", _profile, "")
            if profile and profile in counts:
                raise each.below("profile").refuse("each profile once")
            counts[profile] = found.read("count", _count, 1)
    return dict(sorted(counts.items()))


def _count(field: Field) -> int:
    return _whole(field, 1, _MOST_SLICES)


def _profile(field: Field) -> str:
    """Return a profile as the driver calls it: `1g.10gb.me` is `1g.10gb+me`."""
    match = _PROFILE.fullmatch(field.value) if isinstance(field.value, str) else None
    if match is None:
        raise field.refuse("the name of a profile, e.g. 1g.10gb, 7g.141gb or 1g.10gb+me")
    plain, added, without = match.groups()
    return f"{plain}+{added}" if added else plain + (without or "")


def custom_name(group: str, config: configs.Config) -> str:
    """Return the name of a group's own MIG config: the same for the same partitions alone."""
    plain = sorted([list(each.devices or ()), dict(each.counts)] for each in config)
    digest = hashlib.sha256(msgspec.json.encode(plain)).hexdigest()[:8]
    return naming.label_value(f"{CUSTOM}-{group}", suffix=f"-{digest}")


def _whole(field: Field, least: int, most: int | None) -> int:
    value = field.value
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # A CRD's `number` may come as 4.0.
    upper = f" to {most}" if most is not None else ""
    allowed = f"a whole number from {least}{upper}"
    return field.instead(value).whole(least=least, most=most or math.inf, allowed=allowed)


_BLOCKS = {
    Sharing.EXCLUSIVE: ("exclusive", _exclusive),
    Sharing.TIME_SLICING: ("timeSlicing", _time_slicing),
    Sharing.MIG: ("mig", _mig),
}
"""By `sharing`: the block that says more of it, and its reader."""
