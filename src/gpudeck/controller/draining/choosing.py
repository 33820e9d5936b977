# SPDX-License-Identifier: Apache-2.0
"""Which pods of a node are to be evicted. Pure.

A node's process may name any pod: one that is not on its node, or that was made anew since, is
not touched. Pods of DaemonSets and mirror pods come back at once, so evicting them gains
nothing and costs whoever needs them; they are passed over, as `kubectl drain` does (1.37).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpudeck.api.core import Pod
from gpudeck.controller.draining import requests
from gpudeck.kube import evicting

MIRROR = "kubernetes.io/config.mirror"
"""Annotation by which the kubelet marks the pod that stands for a file of its node."""
_ENDED = ("Succeeded", "Failed")


class Choice(msgspec.Struct, frozen=True):
    """What is to be done, and what is said about it."""

    evict: tuple[evicting.Pod, ...] = ()
    are_left: bool = False
    """Some are still to go, evicted or not, those that are passed over aside."""
    passed: tuple[str, ...] = ()
    """Why a pod that was named is left alone, as sentences."""


def choose(node: str, request: requests.Request, pods: Iterable[Pod]) -> Choice:
    """Return what is to be done; `pods` are those that are bound to the node now."""
    here = {identity(each): each for each in pods if bound_to(each) == node and not has_ended(each)}
    named = None if request.all else _named(request, here)
    evict, passed, leaving = [], [], False
    for key, found in here.items():
        if named is not None and key not in named:
            continue
        why = _why_not(found)
        if is_leaving(found):
            leaving = leaving or not why
        elif not why:
            evict.append(key)
        elif named is not None:
            passed.append(f"{key} {why}")
    return Choice(tuple(evict), bool(evict) or leaving, tuple(passed))


def _named(request: requests.Request, here: Iterable[evicting.Pod]) -> frozenset[evicting.Pod]:
    """Pods that the request names; without its UID, the pod is meant that has the name now."""
    by_name = {(each.namespace, each.name): each for each in here}
    return frozenset(
        evicting.Pod(each.namespace, each.name, each.uid)
        if each.uid
        else by_name.get((each.namespace, each.name), evicting.Pod(each.namespace, each.name, ""))
        for each in request.pods or ()
    )


def _why_not(pod: Pod) -> str:
    if is_static(pod):
        return "is a static pod of the node and is not evicted."
    if daemon_set(pod):
        return f"belongs to DaemonSet {daemon_set(pod)} and is not evicted."
    return ""


def identity(pod: Pod) -> evicting.Pod:
    """Return the pod's names."""
    meta = pod.metadata
    return evicting.Pod(meta.namespace or "", meta.name, meta.uid or "")


def bound_to(pod: Pod) -> str:
    """Return the name of the pod's node, empty while it has none."""
    return (pod.spec.node_name if pod.spec else None) or ""


def is_static(pod: Pod) -> bool:
    """Whether a file of the node is what makes the pod."""
    return MIRROR in (pod.metadata.annotations or {})


def daemon_set(pod: Pod) -> str:
    """Return the name of the DaemonSet that the pod belongs to, empty for none."""
    owners = pod.metadata.owner_references or ()
    return next((each.name for each in owners if each.controller and each.kind == "DaemonSet"), "")


def is_leaving(pod: Pod) -> bool:
    """Whether it was deleted or evicted and its containers are being ended."""
    return pod.metadata.deletion_timestamp is not None


def has_ended(pod: Pod) -> bool:
    """Whether all its containers have ended for good."""
    return pod.status is not None and pod.status.phase in _ENDED
