# SPDX-License-Identifier: Apache-2.0
"""The closed list of reasons: each card of the cluster has exactly one towards a pod."""

from __future__ import annotations

import enum


class Reason(enum.StrEnum):
    """Why a card is not, or is, the pod's. In the order in which they are looked for."""

    HELD_BY_THIS_POD = "HeldByThisPod"
    NOT_ASKED = "NotAsked"
    LOST = "Lost"
    DOES_NOT_MATCH_CLASS = "DoesNotMatchClass"
    NODE_NOT_READY = "NodeNotReady"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    NODE_CHANGES_MODE = "NodeChangesMode"
    TAINT_NOT_TOLERATED = "TaintNotTolerated"
    NODE_SELECTOR_MISMATCH = "NodeSelectorMismatch"
    DRIVER_NOT_READY = "DriverNotReady"
    NOT_HEALTHY = "NotHealthy"
    CORDONED = "Cordoned"
    PARTITIONING_CHANGES = "PartitioningChanges"
    PARTITIONING_OFF = "PartitioningOff"
    PARTITIONING_ON = "PartitioningOn"
    HELD_BY_POD = "HeldByPod"
    HELD_BY_CLAIM = "HeldByClaim"
    NOT_ENOUGH_LEFT = "NotEnoughLeft"
    NOT_PUBLISHED = "NotPublished"
    MATCHES = "Matches"


Obstacle = tuple[Reason, str]
"""A reason, and who or what it is."""

MEANINGS: dict[Reason, str] = {
    Reason.HELD_BY_THIS_POD: "this pod holds the card, or a part of it",
    Reason.NOT_ASKED: "the pod does not ask for a card",
    Reason.LOST: "the card disappeared from its node",
    Reason.DOES_NOT_MATCH_CLASS: "the card is not what the pod asks for",
    Reason.NODE_NOT_READY: "the card's node is not Ready",
    Reason.NODE_UNSCHEDULABLE: "the card's node is cordoned",
    Reason.NODE_CHANGES_MODE: "the card's node changes between DRA and device plugin mode",
    Reason.TAINT_NOT_TOLERATED: "the card's node has a taint that the pod does not tolerate",
    Reason.NODE_SELECTOR_MISMATCH: "the pod's node selector or affinity excludes the card's node",
    Reason.DRIVER_NOT_READY: "the card's driver is not ready",
    Reason.NOT_HEALTHY: "the card is not healthy",
    Reason.CORDONED: "a DeviceTaintRule keeps new pods off the card",
    Reason.PARTITIONING_CHANGES: "the card's partitioning mode is about to change",
    Reason.PARTITIONING_OFF: "the card's partitioning mode is off, and only a reset changes it",
    Reason.PARTITIONING_ON: "the card's partitioning mode is on, and only a reset changes it",
    Reason.HELD_BY_POD: "another pod holds the card, or a part of it",
    Reason.HELD_BY_CLAIM: "a claim that no pod uses holds the card",
    Reason.NOT_ENOUGH_LEFT: "the card is shared, and less of it is left than the pod needs",
    Reason.NOT_PUBLISHED: "the card is not offered to Kubernetes",
    Reason.MATCHES: "the card, or enough of it, is free and would do",
}

CLAUSES: dict[Reason, tuple[str, str]] = {
    Reason.LOST: ("has disappeared", "have disappeared"),
    Reason.NODE_NOT_READY: ("is on a node that is not Ready", "are on nodes that are not Ready"),
    Reason.NODE_UNSCHEDULABLE: ("is on a cordoned node", "are on cordoned nodes"),
    Reason.NODE_CHANGES_MODE: (
        "is on a node that changes its mode",
        "are on nodes that change their mode",
    ),
    Reason.TAINT_NOT_TOLERATED: (
        "is on a node with a taint that the pod does not tolerate",
        "are on nodes with a taint that the pod does not tolerate",
    ),
    Reason.NODE_SELECTOR_MISMATCH: (
        "is on a node that the pod's node selector or affinity excludes",
        "are on nodes that the pod's node selector or affinity excludes",
    ),
    Reason.DRIVER_NOT_READY: ("has no ready driver", "have no ready driver"),
    Reason.NOT_HEALTHY: ("is not healthy", "are not healthy"),
    Reason.CORDONED: ("is cordoned", "are cordoned"),
    Reason.PARTITIONING_CHANGES: (
        "is about to change its partitioning mode",
        "are about to change their partitioning mode",
    ),
    Reason.PARTITIONING_OFF: (
        "has its partitioning mode off",
        "have their partitioning mode off",
    ),
    Reason.PARTITIONING_ON: (
        "has its partitioning mode on",
        "have their partitioning mode on",
    ),
    Reason.NOT_ENOUGH_LEFT: ("has not enough left", "have not enough left"),
    Reason.HELD_BY_POD: ("is held by another pod", "are held by other pods"),
    Reason.HELD_BY_CLAIM: (
        "is held by a claim that no pod uses",
        "are held by claims that no pod uses",
    ),
    Reason.NOT_PUBLISHED: ("is not offered to Kubernetes", "are not offered to Kubernetes"),
    Reason.MATCHES: ("is free", "are free"),
}
"""How a sentence says it of one card and of several."""
