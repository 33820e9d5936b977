# SPDX-License-Identifier: Apache-2.0
"""Makes the DaemonSets and configs of a group, and the right to read the configs; the DaemonSets
from templates of the chart.

Pure. A template is a whole DaemonSet as for one group alone; the group is put into its name,
labels, selectors and settings here, so that pods of two groups never meet on one node: their
node selectors ask for different values of one label.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gpudeck import errors
from gpudeck.api import documents, labels
from gpudeck.api.meta import OwnerReference
from gpudeck.api.resources import CONFIG_MAP, DAEMON_SET, ROLE, Resource
from gpudeck.controller.nodegroups.groups import Group, Sharing, Use, World
from gpudeck.mig import configs

PLUGIN, DISCOVERY = "nvidia-device-plugin", labels.DISCOVERY
TEMPLATES = (PLUGIN, DISCOVERY)
INVALID = "NodeWorkloadsInvalid"
"""Reason of what is wrong with the ConfigMap of the templates."""

Object = dict[str, Any]


def read(content: Mapping[str, str] | None) -> dict[str, Object]:
    """Return the DaemonSets of the ConfigMap's data by name.

    Raises InvalidError with the path of the first field that is not as `daemon_set` needs it.
    """
    return {name: _read(content or {}, name) for name in TEMPLATES}


def _read(content: Mapping[str, str], name: str) -> Object:
    key = f"{name}.yaml"
    if key not in content:
        raise _refusal(f"data[{key}]", "nothing", "a DaemonSet")
    found = documents.read(content[key], f"data[{key}]", reason=INVALID)
    for path in (
        ("metadata",),
        ("spec", "selector"),
        ("spec", "template", "metadata"),
        ("spec", "template", "spec"),
    ):
        place = found
        for word in path:
            place = place.get(word) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            raise _refusal(f"data[{key}].{'.'.join(path)}", repr(place), "a mapping")
    if not isinstance(found["spec"]["template"]["spec"].get("containers"), list):
        raise _refusal(f"data[{key}].spec.template.spec.containers", "nothing", "a list")
    return dict(found)


def wanted(
    templates: Mapping[str, Object],
    world: World,
    namespace: str,
    owner: OwnerReference,
    *,
    before: str = "",
) -> dict[tuple[Resource, str], Object]:
    """Return every object of every group, by resource and name, configs before their readers.

    `before` is what the MIG configs of groups were, as they are written.
    """
    found = world.groups()
    maps = [config_map(group, namespace, owner) for group in found]
    readable = [each["metadata"]["name"] for each in maps if each is not None]
    # Those of a group that cannot be read go by names that only it knows: all stay until it can be.
    last = _written(before) if world.unreadable() else {}
    customs = {**last, **_customs(found)}
    maps.append(mig_configs(customs, namespace, owner, written=_mig_written(found)))
    made = {(CONFIG_MAP, each["metadata"]["name"]): each for each in maps if each is not None}
    readable += [f"{PLUGIN}-{key}" for key in world.unreadable()]
    if readable:
        made[ROLE, labels.GROUP_CONFIGS_READER] = reader(readable, namespace, owner)
    for group in found:
        for name, template in templates.items():
            each = daemon_set(template, name, group, owner)
            made[DAEMON_SET, each["metadata"]["name"]] = each
    return made


def daemon_set(template: Object, name: str, group: Group, owner: OwnerReference) -> Object:
    """Return the DaemonSet of a group; its owner is the ConfigMap with the template."""
    made = copy.deepcopy(template)
    ours = {labels.NODE_GROUP: group.key}
    meta, spec = made["metadata"], made["spec"]
    pods = spec["template"]
    meta["name"] = object_name(name, group)
    meta["ownerReferences"] = [owner]
    _join(meta, "labels", {**ours, labels.MANAGED_BY: labels.MANAGED_BY_GPUDECK})
    _join(spec["selector"], "matchLabels", ours)
    _join(pods["metadata"], "labels", {**ours, labels.MANAGED_BY: labels.MANAGED_BY_GPUDECK})
    _join(pods["spec"], "nodeSelector", ours)
    if group.use is not None:
        for container in pods["spec"]["containers"]:
            _set(container, _environment(group))
    return made


def config_map(group: Group, namespace: str, owner: OwnerReference) -> Object | None:
    """Return the named configs of a group, one a kind of sharing; None for the group `default`."""
    if group.use is None:
        return None
    return _config_map(
        object_name(PLUGIN, group),
        {each.value: _config(each, group.use) for each in Sharing},
        namespace=namespace,
        owner=owner,
        key=group.key,
    )


def _customs(groups: Iterable[Group]) -> dict[str, configs.Config]:
    return {
        group.use.mig_config: group.use.mig_custom
        for group in groups
        if group.use is not None and group.use.mig_custom
    }


def _mig_written(groups: Iterable[Group]) -> dict[str, str]:
    """Where people wrote which MIG config, or chose it."""
    found: dict[str, list[str]] = {}
    for group in groups:
        if group.use is not None and group.use.mig_config:
            found.setdefault(group.use.mig_config, []).append(group.use.mig_written)
    return {name: errors.listed(places, 3) for name, places in sorted(found.items())}


def _written(text: str) -> Mapping[str, configs.Config]:
    """What was written before; nothing where somebody has spoiled it."""
    try:
        return configs.read(text).by_name if text else {}
    except errors.InvalidError:
        return {}


def mig_configs(
    found: Mapping[str, configs.Config],
    namespace: str,
    owner: OwnerReference,
    *,
    written: Mapping[str, str],
) -> Object | None:
    """Return the MIG configs that groups describe themselves, and where people wrote which.

    None where no group says anything of MIG.
    """
    if not found and not written:
        return None
    data = {configs.WRITTEN_KEY: msgspec.json.encode(written).decode()}
    if found:
        data[configs.KEY] = configs.write(dict(sorted(found.items())))
    return _config_map(
        labels.GROUP_MIG_CONFIGS,
        data,
        namespace=namespace,
        owner=owner,
        key="",
    )


def reader(names: Iterable[str], namespace: str, owner: OwnerReference) -> Object:
    """Return the Role by which nodes read these configs; the chart binds it."""
    rule = {
        "apiGroups": [CONFIG_MAP.group],
        "resources": [CONFIG_MAP.plural],
        "resourceNames": sorted(names),
        # list and watch are allowed with metadata.name as field selector.
        "verbs": ["get", "list", "watch"],
    }
    meta = _meta(labels.GROUP_CONFIGS_READER, namespace=namespace, owner=owner, key="")
    return {"metadata": meta, "rules": [rule]}


def _config_map(
    name: str, data: Mapping[str, str], *, namespace: str, owner: OwnerReference, key: str
) -> Object:
    return {"metadata": _meta(name, namespace=namespace, owner=owner, key=key), "data": data}


def _meta(name: str, *, namespace: str, owner: OwnerReference, key: str) -> Object:
    return {
        "name": name,
        "namespace": namespace,
        "labels": {labels.NODE_GROUP: key, labels.MANAGED_BY: labels.MANAGED_BY_GPUDECK},
        "ownerReferences": [owner],
    }


def _config(sharing: Sharing, use: Use) -> str:
    """Return a config of the device plugin. Sharing by one is none."""
    strategy = "mixed" if sharing is Sharing.MIG else "none"
    text = f"version: v1\nflags:\n  migStrategy: {strategy}\n"
    if sharing is not Sharing.TIME_SLICING or use.partition_count == 1:
        return text
    return text + (
        "sharing:\n"
        "  timeSlicing:\n"
        "    renameByDefault: false\n"
        "    failRequestsGreaterThanOne: true\n"
        "    resources:\n"
        "    - name: nvidia.com/gpu\n"
        f"      replicas: {use.partition_count}\n"
    )


def _environment(group: Group) -> dict[str, str]:
    return {
        "GPUDECK_GROUP_CONFIG_MAP": object_name(PLUGIN, group),
        "GPUDECK_DEFAULT_CONFIG": "",
    }


def _set(container: Object, variables: Mapping[str, str]) -> None:
    left = [each for each in container.get("env") or () if each.get("name") not in variables]
    container["env"] = [*left, *({"name": name, "value": text} for name, text in variables.items())]


def object_name(name: str, group: Group) -> str:
    """Return the name of an object of the group, `nvidia-device-plugin-<group>`."""
    return f"{name}-{group.key}"


def _join(place: Object, field: str, more: Mapping[str, str]) -> None:
    place[field] = {**(place.get(field) or {}), **more}


def _refusal(path: str, value: str, allowed: str) -> errors.InvalidError:
    return errors.InvalidError(
        f"{path}: {value} is not valid; allowed: {allowed}",
        reason=INVALID,
        field=path,
        allowed=allowed,
    )
