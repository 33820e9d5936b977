# SPDX-License-Identifier: Apache-2.0
"""Which nodes belong to which NodeFeatureGroup. Pure; the master calls it and writes it.

A change of one node asks all groups about that node alone, and a group that is new or has
other rules asks all nodes once: what happens in a large cluster costs as much as it changes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpudeck.api.nodefeatures import (
    GroupNode,
    NodeFeatureGroup,
    NodeFeatureGroupSpec,
    NodeFeatureGroupStatus,
)
from gpudeck.errors import InvalidError
from gpudeck.features.known import Known
from gpudeck.features.rules import evaluating


class _Members(msgspec.Struct):
    spec: NodeFeatureGroupSpec
    """The rules that the nodes were asked about."""
    nodes: set[str] = msgspec.field(default_factory=set)
    is_whole: bool = False
    """Whether all nodes were asked."""
    wrong: InvalidError | None = None
    """Why the rules make no sense; then no node is asked any more."""


class Membership:
    """The nodes of each group, by the group's key."""

    def __init__(self) -> None:
        self._of: dict[str, _Members] = {}

    def begin(self, key: str, group: NodeFeatureGroup) -> bool:
        """Whether all nodes must be asked, and `whole` told: the group is new, or its rules are."""
        held = self._of.get(key)
        if held is None or held.spec != group.spec:
            held = self._of[key] = _Members(group.spec)
        return not held.is_whole

    def whole(self, key: str) -> None:
        """Say that all nodes were asked."""
        if key in self._of:
            self._of[key].is_whole = True

    def end(self, key: str) -> None:
        """Forget a group."""
        self._of.pop(key, None)

    def ask(self, key: str, node: str, known: Known) -> bool:
        """Ask one group about a node of which this is known; whether that changed the group."""
        held = self._of.get(key)
        if held is None or held.wrong is not None:
            return False
        try:
            is_one = is_member(held.spec, known)
        except InvalidError as error:
            held.wrong = error
            return True
        was = node in held.nodes
        (held.nodes.add if is_one else held.nodes.discard)(node)
        return is_one is not was

    def changed(self, node: str, known: Known) -> list[str]:
        """Ask all groups about a node; the keys of those that changed."""
        return [key for key in self._of if self.ask(key, node, known)]

    def gone(self, node: str) -> list[str]:
        """Forget a node; the keys of the groups that it was in."""
        left = [key for key, held in self._of.items() if node in held.nodes]
        for key in left:
            self._of[key].nodes.discard(node)
        return left

    def status(self, key: str) -> NodeFeatureGroupStatus | None:
        """The status of a group, None if it is forgotten. InvalidError if its rules are wrong."""
        held = self._of.get(key)
        if held is not None and held.wrong is not None:
            raise held.wrong
        return status(held.nodes) if held is not None else None


def is_member(spec: NodeFeatureGroupSpec, known: Known) -> bool:
    """Whether a node fulfils one rule of the group. InvalidError if a rule makes no sense."""
    return evaluating.is_member(spec.feature_group_rules or (), known, "spec.featureGroupRules")


def status(members: Iterable[str]) -> NodeFeatureGroupStatus:
    """The status of a group with these nodes."""
    return NodeFeatureGroupStatus(nodes=[GroupNode(name=name) for name in sorted(members)])
