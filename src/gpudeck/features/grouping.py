# SPDX-License-Identifier: Apache-2.0
"""Which nodes belong to a NodeFeatureGroup. Pure; the master writes it."""

from __future__ import annotations

from collections.abc import Mapping

from gpudeck.api.nodefeatures import GroupNode, NodeFeatureGroup, NodeFeatureGroupStatus
from gpudeck.errors import InvalidError
from gpudeck.features.known import Known
from gpudeck.features.rules import evaluating


def status(
    group: NodeFeatureGroup, nodes: Mapping[str, Known]
) -> tuple[NodeFeatureGroupStatus | None, str]:
    """Return the status, and why a rule makes no sense: then the last status stays."""
    rules = group.spec.feature_group_rules or []
    try:
        members = [
            name
            for name, known in sorted(nodes.items())
            if evaluating.is_member(rules, known, "spec.featureGroupRules")
        ]
    except InvalidError as error:
        return None, error.message
    return NodeFeatureGroupStatus(nodes=[GroupNode(name=name) for name in members]), ""
