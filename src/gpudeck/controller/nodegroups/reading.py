# SPDX-License-Identifier: Apache-2.0
"""Reads groups: `.spec.gpu` of a NodeGroup, and the groups of the chart's values.

Pure. Defaults are those that Deckhouse documents. Where its documentation leaves out what
cards have (profiles of 100 GB and more, `+me`, `+gfx`), it is read all the same. What is
wrong is refused with the path of the field.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import yaml

from gpudeck import errors
from gpudeck.api import documents, names
from gpudeck.api.nodegroups import NodeGroup
from gpudeck.api.v1alpha1.gpuclass import LabelSelector
from gpudeck.controller.nodegroups.groups import (
    DEFAULT,
    Group,
    Selected,
    Sharing,
    Use,
    World,
    key_of,
)
from gpudeck.errors import InvalidError
from gpudeck.mig import configs

REASON = "NodeGroupInvalid"
VALUES = "groups.yaml"
"""The key of the chart's ConfigMap with its own groups."""
CUSTOM = "custom"
"""The name in `partedConfig` of what `customConfigs` describes."""
_BLOCKS = {
    Sharing.EXCLUSIVE: "exclusive",
    Sharing.TIME_SLICING: "timeSlicing",
    Sharing.MIG: "mig",
}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PROFILE = re.compile(r"([1-9][0-9]*g\.[1-9][0-9]*gb)(?:[+.]((?:me|gfx)(?:\.all)?)|(-me))?")
_MOST_PARTITIONS, _MOST_SLICES = 100, 7


def node_group(found: NodeGroup) -> Group | None:
    """Return the group; None for one that says nothing of GPUs. Raises InvalidError."""
    gpu = found.spec.gpu if found.spec is not None else None
    if gpu is None:
        return None
    name = found.metadata.name
    return Group(name=name, key=key_of(name), use=_use(gpu, "spec.gpu", name))


def world(
    found: Iterable[NodeGroup], text: str, before: World
) -> tuple[World, dict[str, InvalidError]]:
    """Return all groups, and what is wrong with some: by the name of the NodeGroup, or by the
    path of the chart's value. `text` is the list of the chart's groups as YAML, or empty.

    A group that cannot be read stays as it was in `before`, for nodes that join it as well.
    """
    problems: dict[str, InvalidError] = {}
    keys = {DEFAULT}
    node_groups: dict[str, Group | None] = {}
    for each in sorted(found, key=lambda found: found.metadata.name):
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
            name, selector = _head(entry, path)
        except InvalidError as error:
            problems[path] = error
            continue
        try:
            group = Group(
                name=name, key=key_of(name), use=_use(entry.get("gpu"), f"{path}.gpu", name)
            )
            selected.append(Selected(name, selector, _taken(keys, group, f"{path}.name")))
        except InvalidError as error:
            selected.append(Selected(name, selector, _kept(keys, known.get(name))))
            problems[path] = error
    return World(node_groups=node_groups, selected=tuple(selected)), problems


def _taken(keys: set[str], group: Group, path: str) -> Group:
    """Return the group itself. Raises InvalidError if another has its key."""
    if group.key in keys:
        raise _refusal(path, group.name, "a name that no other group has")
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
        found = documents.load(text or "[]")
    except yaml.YAMLError as error:
        shown = " ".join(str(error).split())
        problems[VALUES] = _refusal(VALUES, shown, "a YAML document")
        return None
    if not isinstance(found, list):
        problems[VALUES] = _refusal(VALUES, found, "a list of {name, selector, gpu}")
        return None
    return found


def _head(found: Any, path: str) -> tuple[str, LabelSelector]:
    entry = _mapping(found, path)
    name, selector = entry.get("name"), entry.get("selector")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        allowed = "small letters, digits and dashes, at most 63"
        raise _refusal(f"{path}.name", name, allowed)
    try:
        return name, msgspec.convert(selector, LabelSelector)
    except msgspec.ValidationError as error:
        raise _refusal(f"{path}.selector", selector, f"a label selector ({error})") from error


def _use(found: Any, path: str, name: str) -> Use:
    gpu = _mapping(found, path)
    try:
        sharing = Sharing(str(gpu.get("sharing")))
    except ValueError as error:
        raise _refusal(f"{path}.sharing", gpu.get("sharing"), ", ".join(Sharing)) from error
    for other, block in _BLOCKS.items():
        if other is not sharing and gpu.get(block) is not None:
            where = f"{path}.{block}"
            raise _refusal(where, gpu[block], f"nothing while sharing is {sharing.value}")
    block = f"{path}.{_BLOCKS[sharing]}"
    inner = _mapping(gpu.get(_BLOCKS[sharing]) or {}, block)
    if sharing is Sharing.TIME_SLICING:
        where = f"{block}.partitionCount"
        count = _whole(inner.get("partitionCount", 4), where, 1, _MOST_PARTITIONS)
        return Use(sharing=sharing, partition_count=count)
    if sharing is Sharing.MIG:
        return _mig(inner, block, name)
    return Use(sharing=sharing)


def _mig(inner: Mapping[str, Any], path: str, name: str) -> Use:
    chosen, custom = inner.get("partedConfig", "all-1g.5gb"), inner.get("customConfigs")
    where = f"{path}.partedConfig"
    if chosen == CUSTOM:
        config = _customs(custom, f"{path}.customConfigs")
        return Use(sharing=Sharing.MIG, mig_config=custom_name(name, config), mig_custom=config)
    if not isinstance(chosen, str) or not _LABEL.fullmatch(chosen):
        raise _refusal(where, chosen, "the name of a MIG config, which is the value of a label")
    if custom:
        raise _refusal(where, chosen, f"{CUSTOM} where there are customConfigs")
    return Use(sharing=Sharing.MIG, mig_config=chosen)


def _customs(found: Any, path: str) -> configs.Config:
    if not isinstance(found, list) or not found:
        raise _refusal(path, found, "a list of at least one {index, slices}")
    entries: dict[int, configs.Entry] = {}
    for position, each in enumerate(found):
        where = f"{path}[{position}]"
        entry = _mapping(each, where)
        index = _whole(entry.get("index"), f"{where}.index", 0, None)
        if index in entries:
            raise _refusal(f"{where}.index", index, "the number of each card once")
        counts = _slices(entry.get("slices"), f"{where}.slices")
        entries[index] = configs.Entry(enabled=True, devices=(index,), counts=counts)
    return tuple(entries[index] for index in sorted(entries))


def _slices(found: Any, path: str) -> dict[str, int]:
    if not isinstance(found, list) or not found:
        raise _refusal(path, found, "a list of at least one {profile, count}")
    counts: dict[str, int] = {}
    for position, each in enumerate(found):
        where = f"{path}[{position}]"
        entry = _mapping(each, where)
        profile = _profile(entry.get("profile"), f"{where}.profile")
        if profile in counts:
            raise _refusal(f"{where}.profile", entry["profile"], "each profile once")
        counts[profile] = _whole(entry.get("count", 1), f"{where}.count", 1, _MOST_SLICES)
    return dict(sorted(counts.items()))


def _profile(found: Any, path: str) -> str:
    """Return a profile as the driver calls it: `1g.10gb.me` is `1g.10gb+me`."""
    match = _PROFILE.fullmatch(found) if isinstance(found, str) else None
    if match is None:
        raise _refusal(path, found, "the name of a profile, e.g. 1g.10gb, 7g.141gb or 1g.10gb+me")
    plain, added, without = match.groups()
    return f"{plain}+{added}" if added else plain + (without or "")


def custom_name(group: str, config: configs.Config) -> str:
    """Return the name of a group's own MIG config: the same for the same partitions alone."""
    plain = [[list(each.devices or ()), dict(each.counts)] for each in config]
    digest = hashlib.sha256(msgspec.json.encode(plain)).hexdigest()[:8]
    return names.label_value(f"{CUSTOM}-{group}", suffix=f"-{digest}")


def _mapping(found: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise _refusal(path, found, "a mapping")
    return found


def _whole(found: Any, path: str, least: int, most: int | None) -> int:
    if isinstance(found, float) and found.is_integer():
        found = int(found)  # A CRD's `number` may come as 4.0.
    is_number = isinstance(found, int) and not isinstance(found, bool)
    number = int(found) if is_number else -1
    if number < least or (most is not None and number > most):
        upper = f" to {most}" if most is not None else ""
        raise _refusal(path, found, f"a whole number from {least}{upper}")
    return number


def _refusal(path: str, value: object, allowed: str) -> InvalidError:
    if value is not None:
        return errors.not_valid(path, value, allowed, reason=REASON)
    return InvalidError(
        f"{path}: is missing; allowed: {allowed}", reason=REASON, field=path, allowed=allowed
    )
