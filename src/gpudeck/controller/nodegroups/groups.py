# SPDX-License-Identifier: Apache-2.0
"""What a group of nodes is, which group serves a node, and what labels it gives to it.

Pure. A node is served by the NodeGroup of its label node.deckhouse.io/group if that says
something of GPUs, else by the first group of the chart's values whose selector it fits, else
by the group `default`. A group that cannot be read keeps what was made for it before.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping

import msgspec

from gpudeck import errors
from gpudeck.api import labels, labelselectors, names
from gpudeck.api.nodegroups import NODE_GROUP_NAME
from gpudeck.mig import defaults
from gpudeck.mig.configs import Config
from gpudeck.pluginconfig import selecting

DEFAULT = "default"
"""The group of GPU nodes that are in no other."""
INVALID, UNKNOWN = "NodeGroupInvalid", "NodeGroupUnknown"
KEY_LENGTH = 40
"""Of a group's part in names: `nvidia-device-plugin-<key>` is the value of a label too, and with
`gpu-feature-discovery-` in front it has 62 characters."""
GPU_LABEL = "node.deckhouse.io/gpu"
CONFIG_LABEL = selecting.GROUP_LABEL
MIG_LABEL = labels.MIG_CONFIG
DISCOVERY_LABEL = f"{labels.DEPLOY}gpu-feature-discovery"


class Sharing(enum.StrEnum):
    """How the cards of a group are handed out; also the name of its config."""

    EXCLUSIVE = "Exclusive"
    TIME_SLICING = "TimeSlicing"
    MIG = "MIG"


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """What a group says of its cards."""

    sharing: Sharing
    partition_count: int = 4
    """Replicas of each card where they are shared by time."""
    mig_config: str = ""
    """The value of nvidia.com/mig.config with MIG."""
    mig_custom: Config = ()
    """What that config is, where the group itself describes it; its entries in their order."""
    mig_written: str = ""
    """The path at which a person wrote that config, or chose it."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One group of nodes."""

    name: str
    key: str
    """The value of the label gpu.deckhouse.io/node-group and the end of its objects' names."""
    use: Use | None = None
    """None for the group `default`: its nodes follow the chart's values and their own labels."""


class Selected(msgspec.Struct, frozen=True):
    """A group of the chart's values and the nodes that it is about; None if it cannot be read."""

    name: str
    selector: tuple[labelselectors.Requirement, ...]
    group: Group | None
    refused: str = ""
    """What is wrong with it, as the end of a sentence."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """All groups."""

    node_groups: Mapping[str, Group | None] = {}
    """Those with something about GPUs, by name; None for one that cannot be read."""
    selected: tuple[Selected, ...] = ()
    names: frozenset[str] | None = None
    """Those of all NodeGroups; None where nobody serves the kind."""
    refused: Mapping[str, str] = {}
    """What is wrong with NodeGroups, by name, as the end of a sentence."""

    def groups(self) -> tuple[Group, ...]:
        """Return every group that can be read, the default one first."""
        found = (*self.node_groups.values(), *(each.group for each in self.selected))
        return (DEFAULT_GROUP, *(each for each in found if each is not None))

    def unreadable(self) -> frozenset[str]:
        """Return the keys of the groups whose objects are left as they are."""
        found = [name for name, each in self.node_groups.items() if each is None]
        found += [each.name for each in self.selected if each.group is None]
        return frozenset(map(key_of, found))


DEFAULT_GROUP = Group(name=DEFAULT, key=DEFAULT)


def key_of(name: str) -> str:
    """Return a group's part in names: its name, cut and hashed if it is long.

    `default` is that of the group of all other nodes, so a group of that name is hashed too.
    """
    if name != DEFAULT:
        return names.label_value(name, length=KEY_LENGTH)
    return f"{name}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


class Membership(msgspec.Struct, frozen=True):
    """Where a node is; `is_unreadable` says that its group is there and cannot be read."""

    group: Group | None
    is_unreadable: bool = False


def of_node(node: Mapping[str, str], world: World) -> Membership:
    """Return the group that serves a node with these labels; none for one without cards."""
    if not node.get(labels.VENDOR):
        return Membership(None)
    name = node.get(NODE_GROUP_NAME, "")
    if name in world.node_groups:
        found = world.node_groups[name]
        return Membership(found, is_unreadable=found is None)
    for each in world.selected:
        if labelselectors.fulfils(node, each.selector):
            return Membership(each.group, is_unreadable=each.group is None)
    return Membership(DEFAULT_GROUP)


class Problem(msgspec.Struct, frozen=True):
    """What keeps a node from following its group."""

    reason: str
    message: str


def problem(node: Mapping[str, str], world: World) -> Problem | None:
    """Return what is wrong with the group of a node with these labels.

    A NodeGroup that says nothing of GPUs is none, and a label of Deckhouse's means nothing where
    Deckhouse is not.
    """
    if not node.get(labels.VENDOR):
        return None
    name = node.get(NODE_GROUP_NAME, "")
    if name in world.node_groups:
        return _refused(f"NodeGroup {name}", world.refused.get(name, ""))
    fits = (each for each in world.selected if labelselectors.fulfils(node, each.selector))
    found = next(fits, None)
    if name and world.names is not None and name not in world.names:
        allowed = errors.listed(sorted(world.names)) or "none, for there is no NodeGroup"
        why = f"label {NODE_GROUP_NAME}: {name!r} is not a NodeGroup; allowed: {allowed}"
        serving = found.name if found else DEFAULT
        return Problem(UNKNOWN, f"{why}. The group {serving} serves the node.")
    return _refused(f"group {found.name} of the chart", found.refused) if found else None


def _refused(group: str, why: str) -> Problem | None:
    return Problem(INVALID, f"{group}: {why}. The node stays as it was.") if why else None


def wanted_labels(
    group: Group | None, node: Mapping[str, str], *, default_mig_config: str = ""
) -> dict[str, str]:
    """Return the labels that a node of the group gets; none for a node in no group.

    A node that has the label of a MIG config and is in a group without MIG gets the config that
    ends MIG. In the group `default` the label is the administrator's; so only a node that comes
    from a group, which had the label, gets that config there, unless `default_mig_config` says
    what nodes without the label have. Deckhouse's own code leaves the label of the plugin's config
    on nodes for ever, so where a node comes from is told by ours alone.
    """
    if group is None:
        return {}
    wanted = {labels.NODE_GROUP: group.key}
    if group.use is None:
        has_left = node.get(labels.NODE_GROUP, group.key) != group.key
        if has_left and MIG_LABEL in node and not default_mig_config:
            wanted[MIG_LABEL] = defaults.DISABLED
        return wanted
    wanted |= {GPU_LABEL: "", CONFIG_LABEL: group.use.sharing.value}
    if group.use.sharing is Sharing.MIG:
        wanted[MIG_LABEL] = group.use.mig_config
    elif MIG_LABEL in node:
        wanted[MIG_LABEL] = defaults.DISABLED
    return wanted


def is_labelled(node: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether a node has the labels of its group, and none of a group that it left.

    All labels of a group are written at once, and any other group, or other use of its cards, has
    another value of one of them: what was written before goes with that.
    """
    has_left = labels.NODE_GROUP in node and labels.NODE_GROUP not in wanted
    return not has_left and all(node.get(key) == value for key, value in wanted.items())


def is_discovered(node: Mapping[str, str], group: Group | None) -> bool:
    """Whether a gpu-feature-discovery speaks for the node, if only after a pause."""
    return group is not None and node.get(DISCOVERY_LABEL) != "false"
