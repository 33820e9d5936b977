# SPDX-License-Identifier: Apache-2.0
"""An Event on every pod that holds a card, or a part of it, when the card falls ill or recovers.

The kubelet shows a device's health only for containers that name their claim; an Event
reaches every other pod as well. Every replica of the controller follows the cards, so
one that takes over knows what ails them; the leader alone tells. An Event's name comes
from the pod, the card and the verdict, so no verdict is told twice, by whomever. Errors
of applications are no verdict about a card and never come here.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from gpudeck import errors, logs
from gpudeck.api import conditions, core, labels, names
from gpudeck.api.meta import Condition, ObjectReference
from gpudeck.api.resource import ResourceClaim
from gpudeck.api.resources import PHYSICAL_GPU, POD
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.controller.physicalgpu import holdings, occupancy
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.recording import Recorder

REST_SECONDS = 10.0
"""Least time between two rounds about one card, however fast its verdict changes."""
EVENT_SECONDS = 3600.0
"""Life of an Event (--event-ttl of kube-apiserver 1.37). What is older was told by a replica
that is gone; its Events have expired, and it is no news."""
UNHEALTHY, RECOVERED = "CardUnhealthy", "CardRecovered"
_log = logs.get(__name__)


class Verdict(msgspec.Struct):
    """What there is to tell about a card, and whom it was told."""

    is_sick: bool
    reason: str
    message: str
    since: str
    told: set[tuple[str, str]] = msgspec.field(default_factory=set)
    """UIDs of pods, each with the reason that it was told."""
    was_seen_to_change: bool = False
    """Whether this replica knows that it is news, however long the card has been ill."""


class Pod(NamedTuple):
    """A pod as its claim names it."""

    namespace: str
    name: str
    uid: str


class Disruption:
    """Follows the cards' health and tells the pods; `reconcile` is called by one queue."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        claims: Cache[ResourceClaim],
        held: holdings.Holdings,
        *,
        gpus: Cache[PhysicalGPU],
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._claims = claims
        self._held = held
        self._gpus = gpus
        self._now = now
        self._verdicts: dict[str, Verdict] = {}
        self._rested: dict[str, datetime.datetime] = {}

    def has_news(self, name: str) -> bool:
        """Whether there is something to tell pods that hold this card."""
        return name in self._verdicts

    def follow(self, name: str, gpu: PhysicalGPU | None) -> bool:
        """Take over a card as it is now; returns whether there is something new to tell."""
        before = self._verdicts.get(name)
        after = follow(before, gpu)
        if after is None:
            self._verdicts.pop(name, None)
            self._rested.pop(name, None)
            return False
        self._verdicts[name] = after
        return after is not before

    async def reconcile(self, name: str) -> float | None:
        """Tell the pods that hold the card; returns the seconds to wait if it is too soon."""
        verdict = self._verdicts.get(name)
        if verdict is None:
            return None
        held = [*self._by_claim(name), *await self._by_plugin(name)]
        pods = [
            pod
            for pod in {pod.uid: pod for pod in held}.values()
            if (pod.uid, verdict.reason) not in verdict.told
        ]
        if self._is_old(verdict) and not verdict.was_seen_to_change:
            # Whoever holds the card by now; pods that come later are told.
            verdict.told.update((pod.uid, verdict.reason) for pod in pods)
            verdict.was_seen_to_change = True
            pods = []
        if pods:
            rest = self._rest(name)
            if rest > 0:
                return rest
            self._rested[name] = self._now()
            await self._tell(name, verdict, pods)
        if not verdict.is_sick and self._verdicts.get(name) is verdict:
            del self._verdicts[name]  # Whoever holds the card from now on has missed nothing.
        return None

    async def _tell(self, name: str, verdict: Verdict, pods: list[Pod]) -> None:
        try:
            gpu = await self._client.get(PHYSICAL_GPU, name, PhysicalGPU)
        except errors.NotFoundError:
            return
        message = sentence(gpu, verdict)
        for pod in pods:
            about = ObjectReference(
                api_version=POD.api_version,
                kind=POD.kind,
                namespace=pod.namespace,
                name=pod.name,
                uid=pod.uid,
            )
            try:
                await self._recorder.record_once(
                    about,
                    key=f"{name} {verdict.reason} {verdict.since}",
                    reason=UNHEALTHY if verdict.is_sick else RECOVERED,
                    message=message,
                    warning=verdict.is_sick,
                )
            except errors.TerminalError as error:
                # For example a namespace that is being deleted takes no Events any more.
                _log.warning("Pod not told", pod=f"{pod.namespace}/{pod.name}", error=error)
            verdict.told.add((pod.uid, verdict.reason))

    def _by_claim(self, name: str) -> Iterator[Pod]:
        for holder in self._held.of(name):
            claim = self._claims.objects.get(f"{holder.namespace}/{holder.name}")
            for pod in (claim.status.reserved_for if claim and claim.status else None) or ():
                yield Pod(holder.namespace, pod.name, pod.uid)

    async def _by_plugin(self, name: str) -> list[Pod]:
        """The pods that a device plugin names; the API server knows their UIDs.

        A node's process may name any pod: one that is not on the card's node is told nothing.
        """
        gpu = self._gpus.objects.get(name)
        if gpu is None:
            return []
        found = []
        for namespace, pod in {(each.namespace, each.pod) for each in occupancy.by_plugin(gpu)}:
            try:
                named = await self._client.get(POD, pod, core.Pod, namespace=namespace)
            except errors.NotFoundError:
                continue  # It has ended, and the kubelet has yet to say so.
            bound = (named.spec.node_name if named.spec else None) or ""
            if names.node_label(bound) == (gpu.metadata.labels or {}).get(labels.NODE):
                found.append(Pod(namespace, pod, named.metadata.uid or ""))
        return sorted(found)

    def _rest(self, name: str) -> float:
        last = self._rested.get(name)
        if last is None:
            return 0.0
        return REST_SECONDS - (self._now() - last).total_seconds()

    def _is_old(self, verdict: Verdict) -> bool:
        try:
            since = datetime.datetime.fromisoformat(verdict.since)
        except ValueError:
            return False
        if since.tzinfo is None:
            since = since.replace(tzinfo=datetime.UTC)
        return (self._now() - since).total_seconds() > EVENT_SECONDS


def follow(before: Verdict | None, gpu: PhysicalGPU | None) -> Verdict | None:
    """Return the verdict about a card: `before` itself if it still stands, None if all is well.

    A verdict stands while nothing better is known: an adapter that restarts says Unknown
    and finds the same fault again, which is no news.
    """
    if gpu is None:
        return None
    found = gpu.status.conditions if gpu.status else None
    healthy = conditions.find(found, conditions.HARDWARE_HEALTHY)
    discovered = conditions.find(found, conditions.DISCOVERED)
    for each in (healthy, discovered):
        if each is not None and each.status == conditions.FALSE:
            return _sick(before, each)
    is_well = healthy is not None and healthy.status == conditions.TRUE
    if before is None or not before.is_sick or not is_well or healthy is None:
        return before
    return Verdict(False, RECOVERED, "", _since(healthy), was_seen_to_change=True)


def _sick(before: Verdict | None, condition: Condition) -> Verdict:
    if before is None or not before.is_sick:
        return Verdict(True, condition.reason, condition.message, _since(condition))
    if condition.reason == before.reason:
        return before
    # One illness with another name: who was told the earlier name is not told that again.
    return Verdict(True, condition.reason, condition.message, before.since, before.told, True)


def sentence(gpu: PhysicalGPU, verdict: Verdict) -> str:
    """Return what a pod is told: which card, where, and why."""
    status = gpu.status
    can, state = (status.capabilities, status.current_state) if status else (None, None)
    pci, node = (status.pci_info, status.node_info) if status else (None, None)
    facts = [
        state.uuid if state and state.uuid else "",
        can.product_name if can and can.product_name else "",
        pci.address if pci else "",
    ]
    shown = ", ".join(fact for fact in facts if fact)
    card = gpu.metadata.name + (f" ({shown})" if shown else "")
    where = f" on node {node.node_name}" if node and node.node_name else ""
    if not verdict.is_sick:
        return f"Card {card}{where}, which this pod holds, is healthy again."
    why = f"{verdict.reason}: {verdict.message}" if verdict.message else verdict.reason
    return f"Card {card}{where}, which this pod holds, is unhealthy: {why}"


def _since(condition: Condition) -> str:
    return str(condition.last_transition_time or "")
