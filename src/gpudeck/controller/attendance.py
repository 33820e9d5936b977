# SPDX-License-Identifier: Apache-2.0
"""On which nodes somebody keeps what is said of the cards true.

The condition Published is its author's word, and the author may be gone: the pod deleted, the
node down. So it counts only while the node has a Ready pod of an adapter. One watch of these
pods tells both: the kubelet and, of a node that is down, the control plane set Ready to
False (node lifecycle controller, Kubernetes 1.37), and pods do not change otherwise. After
the last of them the node counts for some seconds more, as long as the kubelet leaves the
ResourceSlices of a plugin that is gone, so that a restart changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from gpudeck.api import labels, names
from gpudeck.api.core import Pod
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.kube.watching import Change


class Attendance:
    """Nodes, by the value of the label of their cards, with their Ready adapters and cards."""

    def __init__(self, grace_seconds: float, changed: Callable[[str, bool], None]) -> None:
        """`changed` is called with a node that is attended from now on, or no longer."""
        self._grace_seconds = grace_seconds
        self._changed = changed
        self._pods: dict[str, set[str]] = {}
        self._leaving: dict[str, asyncio.TimerHandle] = {}
        self._cards: dict[str, tuple[str, ...]] = {}

    def covers(self, gpu: PhysicalGPU) -> bool:
        """Say whether somebody answers for what the card's conditions say."""
        node = node_of(gpu)
        return node in self._pods or node in self._leaving

    def cards(self, node: str) -> Iterable[str]:
        """Return the names of the PhysicalGPUs of a node."""
        return self._cards.get(node, ())

    def pod_changed(self, change: Change[Pod]) -> None:
        """Take over a change of a pod; the cache keeps those alone that are Ready."""
        if change.new is not None:
            self._come(_node(change.new), change.key)
        elif change.old is not None:
            self._go(_node(change.old), change.key)

    def card_changed(self, change: Change[PhysicalGPU]) -> None:
        """Take over that a card came or went."""
        known = change.new or change.old
        if known is None or (change.old is not None and change.new is not None):
            return
        node = node_of(known)
        others = tuple(each for each in self._cards.get(node, ()) if each != change.key)
        left = (*others, change.key) if change.new is not None else others
        if left:
            self._cards[node] = left
        else:
            self._cards.pop(node, None)

    def _come(self, node: str, pod: str) -> None:
        was = node in self._pods or node in self._leaving
        timer = self._leaving.pop(node, None)
        if timer is not None:
            timer.cancel()
        self._pods.setdefault(node, set()).add(pod)
        if not was:
            self._changed(node, True)

    def _go(self, node: str, pod: str) -> None:
        pods = self._pods.get(node, set())
        pods.discard(pod)
        if pods or node not in self._pods:
            return
        del self._pods[node]
        loop = asyncio.get_running_loop()
        self._leaving[node] = loop.call_later(self._grace_seconds, self._leave, node)

    def _leave(self, node: str) -> None:
        del self._leaving[node]
        self._changed(node, False)


def node_of(gpu: PhysicalGPU) -> str:
    """Return the value of the card's label of its node."""
    return (gpu.metadata.labels or {}).get(labels.NODE, "")


def _node(pod: Pod) -> str:
    return names.node_label((pod.spec.node_name if pod.spec else None) or "")
