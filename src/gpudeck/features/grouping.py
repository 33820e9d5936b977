# SPDX-License-Identifier: Apache-2.0
"""Which nodes belong to which NodeFeatureGroup. Pure; the master calls it and writes it.

A change of one node asks all groups about that node alone, and a group that is new or has
other rules asks all nodes once: what happens in a large cluster costs as much as it changes.
"""

from __future__ import annotations

from collections.abc import Mapping

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


class Answer(msgspec.Struct, frozen=True):
    """Whether a node fulfils one rule of a group."""

    spec: NodeFeatureGroupSpec
    """The rules that it was asked about."""
    is_member: bool
    wrong: str = ""
    """Why the rules cannot be used on this node; then it is no member."""


class _Members(msgspec.Struct):
    spec: NodeFeatureGroupSpec
    """The rules that the nodes are asked about."""
    nodes: set[str] = msgspec.field(default_factory=set)
    is_whole: bool = False
    """Whether all nodes were asked."""
    wrong: str = ""
    """Why the rules cannot be used, on the first node where that was so."""
    is_told: bool = False


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

    def rules(self) -> dict[str, NodeFeatureGroupSpec]:
        """What a node is to be asked, by the group's key."""
        return {key: held.spec for key, held in self._of.items()}

    def tell(self, node: str, answers: Mapping[str, Answer]) -> list[str]:
        """Take what a node answered, by group; the keys of those that changed."""
        changed = []
        for key, answer in answers.items():
            held = self._of.get(key)
            if held is None or held.spec is not answer.spec:
                continue  # It has gone, or has other rules by now.
            if (answer.wrong and not held.wrong) or answer.is_member is not (node in held.nodes):
                changed.append(key)
            held.wrong = held.wrong or answer.wrong
            (held.nodes.add if answer.is_member else held.nodes.discard)(node)
        return changed

    def gone(self, node: str) -> list[str]:
        """Forget a node; the keys of the groups that it was in."""
        left = [key for key, held in self._of.items() if node in held.nodes]
        for key in left:
            self._of[key].nodes.discard(node)
        return left

    def status(self, key: str) -> NodeFeatureGroupStatus | None:
        """The status of a group, None if it is forgotten."""
        held = self._of.get(key)
        if held is None:
            return None
        return NodeFeatureGroupStatus(nodes=[GroupNode(name=name) for name in sorted(held.nodes)])

    def complaint(self, key: str) -> str:
        """Why the rules of a group cannot be used, once; empty if they can, or it was told."""
        held = self._of.get(key)
        if held is None or held.is_told or not held.wrong:
            return ""
        held.is_told = True
        return held.wrong


def ask(rules: Mapping[str, NodeFeatureGroupSpec], known: Known) -> dict[str, Answer]:
    """Ask a node of which this is known whether it belongs to groups.

    A node on which rules fail is no member: others must not lose their group by it.
    """
    found = {}
    for key, spec in rules.items():
        try:
            is_member = evaluating.is_member(
                spec.feature_group_rules or (), known, "spec.featureGroupRules"
            )
        except InvalidError as error:
            found[key] = Answer(spec, is_member=False, wrong=error.message)
        else:
            found[key] = Answer(spec, is_member)
    return found
