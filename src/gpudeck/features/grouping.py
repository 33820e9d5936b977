# SPDX-License-Identifier: Apache-2.0
"""Which nodes belong to a NodeFeatureGroup. Pure; the master calls and writes it."""

from __future__ import annotations

from collections.abc import Iterable

from gpudeck.api.nodefeatures import GroupNode, NodeFeatureGroup, NodeFeatureGroupStatus
from gpudeck.features.known import Known
from gpudeck.features.rules import evaluating


def is_member(group: NodeFeatureGroup, known: Known) -> bool:
    """Whether a node fulfils one rule of the group. InvalidError if a rule makes no sense."""
    rules = group.spec.feature_group_rules or ()
    return evaluating.is_member(rules, known, "spec.featureGroupRules")


def status(members: Iterable[str]) -> NodeFeatureGroupStatus:
    """The status of a group with these nodes."""
    return NodeFeatureGroupStatus(nodes=[GroupNode(name=name) for name in sorted(members)])
