# SPDX-License-Identifier: Apache-2.0
"""The answer to "why": one or two sentences first, then a reason for each card.

Pure. `explain` is what the command calls; `Answer.counts` adds up to all cards.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Iterable

from gpudeck.api import conditions
from gpudeck.api.core import Pod, PodCondition
from gpudeck.explaining import asking, cards, holding, judging, partitioning
from gpudeck.explaining.asking import Asked, Problem
from gpudeck.explaining.judging import Verdict
from gpudeck.explaining.reasons import CLAUSES, Reason
from gpudeck.explaining.world import Placement, World, is_over, node_of

_SHOWN = 3
"""Names that a sentence lists before it says how many more there are."""

_CLAIM_REFUSED = "FailedResourceClaimCreation"
"""Reason of the Event when a claim from a template is refused, as by a quota (controller 1.37)."""


class State(enum.StrEnum):
    """The answer in one word."""

    HOLDS = "Holds"
    ASKS_NO_CARD = "AsksNoCard"
    ENDED = "Ended"
    NAMES_WHAT_IS_NOT_THERE = "NamesWhatIsNotThere"
    PAST_THE_SCHEDULER = "PastTheScheduler"
    STARTING = "Starting"
    NO_CARDS = "NoCards"
    NO_CARD_MATCHES = "NoCardMatches"
    NO_CARD_IS_FREE = "NoCardIsFree"
    TOO_FEW_ON_ONE_NODE = "TooFewOnOneNode"
    NOT_SCHEDULED_YET = "NotScheduledYet"


@dataclasses.dataclass
class Answer:
    """What `gpudeck explain` prints."""

    pod: str
    state: State
    sentences: list[str]
    verdicts: list[Verdict]
    asks: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """Cards by reason, in the order of the list; they add up to all cards."""
        found = collections.Counter(each.reason for each in self.verdicts)
        return {str(reason): found[reason] for reason in Reason if found[reason]}


def explain(pod: Pod, placement: Placement, world: World) -> Answer:
    """Say why a pod waits for cards, or which it holds."""
    asked = asking.of(pod, world)
    judge = judging.Judge(pod, placement, asked, world)
    verdicts = [judge.judge(card) for card in cards.all_of(world)]
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    writer = _Writer(pod, placement, asked, verdicts, world)
    state, sentences = writer.write()
    return Answer(
        pod=name,
        state=state,
        sentences=sentences,
        verdicts=verdicts,
        asks=[each.text for each in asked.asks],
        notes=[*writer.notes(), *_notes(verdicts, world)],
    )


def _notes(verdicts: list[Verdict], world: World) -> list[str]:
    notes = [f"You may not read {kind}, so the answer leaves it out." for kind in world.unreadable]
    terms = sorted({term for each in verdicts for term in each.unknown})
    notes += [f"Not evaluated here, taken as met: {term}" for term in terms]
    return notes


class _Writer:
    def __init__(
        self,
        pod: Pod,
        placement: Placement,
        asked: Asked,
        verdicts: list[Verdict],
        world: World,
    ) -> None:
        self._pod, self._placement, self._asked = pod, placement, asked
        self._verdicts, self._world = verdicts, world
        self._name = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
        self._mine = [each for each in verdicts if each.reason is Reason.HELD_BY_THIS_POD]

    def write(self) -> tuple[State, list[str]]:
        """Return the state and one or two sentences."""
        if is_over(self._pod):
            phase = self._pod.status.phase if self._pod.status else ""
            ended = f"{self._name} has ended ({phase}) and holds no card."
            return State.ENDED, [ended, *self._why_ended()]
        problems = [each for each in self._asked.problems if not self._is_past(each)]
        if problems:
            said = "; ".join(each.sentence for each in problems)
            return State.NAMES_WHAT_IS_NOT_THERE, [_ended(f"{self._name} cannot start: {said}")]
        if not self._asked.asks and not self._asked.problems and not self._mine:
            return State.ASKS_NO_CARD, [f"{self._name} does not ask for a card."]
        if node_of(self._pod):
            return self._bound()
        if self._asked.problems or not self._asked.asks:
            first = f"{self._holds()} and is not bound to a node yet."
            return State.NOT_SCHEDULED_YET, [first, self._scheduler_says()]
        return self._waiting()

    def notes(self) -> list[str]:
        """Return what the pod names and is gone, where the pod itself no longer needs it."""
        past = [each for each in self._asked.problems if self._is_past(each)]
        if is_over(self._pod):
            return []
        return [_ended(f"A new pod like it could not start: {each.sentence}") for each in past]

    def _is_past(self, problem: Problem) -> bool:
        """Whether the pod got past a problem: classes are only looked at to allocate."""
        if self._is_running() or not self._mine:
            return self._is_running()
        if node_of(self._pod):
            return True
        claim = self._world.claims.get(problem.claim)
        return (
            problem.claim in self._asked.claims
            and claim is not None
            and claim.status is not None
            and claim.status.allocation is not None
        )

    def _is_running(self) -> bool:
        return self._pod.status is not None and self._pod.status.phase == "Running"

    def _why_ended(self) -> list[str]:
        """What the kubelet says of a pod that it turned away or put an end to."""
        status = self._pod.status
        if status is None or not status.reason:
            return []
        why = f"{status.reason}: {status.message}" if status.message else status.reason
        return [_ended(f"The kubelet said {why}")]

    def _holds(self) -> str:
        return f"{self._name} holds {_list(_card(each) for each in self._mine)}"

    def _bound(self) -> tuple[State, list[str]]:
        if missed := holding.unallocated(self._pod, self._asked, self._world):
            return self._past_scheduler(missed)
        holds = self._holds()
        place = f" on node {node_of(self._pod)}"
        ailing = ((_card(each), holding.ailment(each.card)) for each in self._mine)
        ill = [f"{name} {ailment}." for name, ailment in ailing if ailment]
        if self._is_running():
            if self._mine:
                return State.HOLDS, [f"{holds}{place}.", *ill]
            return State.HOLDS, [
                f"{self._name} runs{place}; the API does not tell which card it holds."
            ]
        trouble = [each for each in self._world.events if each.type == "Warning"]
        last = max(trouble, key=lambda each: each.last_timestamp or "", default=None)
        start = (
            f"{holds}{place} and is starting."
            if self._mine
            else (f"{self._name} is bound to node {node_of(self._pod)} and is starting.")
        )
        said = [_ended(f"The kubelet last said {last.reason}: {last.message}")] if last else []
        return State.STARTING, [start, *ill, *said]

    def _past_scheduler(self, missed: list[asking.Ask]) -> tuple[State, list[str]]:
        """Say of a pod that kube-scheduler never placed that it has not got what it asks for."""
        node = node_of(self._pod)
        lacks = _list(each.text for each in missed)
        so = f"it does without {lacks}"
        if any(not each.resource for each in missed):
            so = f"it cannot start: nothing is allocated for {lacks}"
        held = f"it holds {_list(_card(each) for each in self._mine)}" if self._mine else ""
        return State.PAST_THE_SCHEDULER, [
            f"{self._name} was not put on node {node} by kube-scheduler (its author set "
            f"spec.nodeName, or another scheduler bound it), so {so}, and "
            f"{held or 'it holds no card'}.",
            "Make it anew without spec.nodeName; spec.nodeSelector with "
            f"kubernetes.io/hostname: {node} keeps it on that node.",
        ]

    def _waiting(self) -> tuple[State, list[str]]:
        wants = f"{self._name} waits for {_list(each.text for each in self._asked.asks)}"
        if not self._verdicts:
            return State.NO_CARDS, [f"{wants}, and the cluster has no cards."]
        others = [each for each in self._verdicts if each.reason is Reason.DOES_NOT_MATCH_CLASS]
        fitting = [each for each in self._verdicts if each not in others and each not in self._mine]
        if not fitting:
            asked = (each.resource for each in self._asked.asks)
            made = "".join(partitioning.makeable(each, self._world) for each in asked)
            none = f"none of the {len(others)} cards of the cluster matches"
            said = f"{wants}, but {none}{_reasons(others)}{made}"
            return State.NO_CARD_MATCHES, [_ended(said)]
        free = [each for each in fitting if each.reason is Reason.MATCHES]
        if not free:
            return State.NO_CARD_IS_FREE, [
                f"{wants}: {_obstacles(fitting)}.",
                *_rest(others),
            ]
        return self._although_free(wants, fitting, free)

    def _although_free(
        self, wants: str, fitting: list[Verdict], free: list[Verdict]
    ) -> tuple[State, list[str]]:
        need = sum(each.count for each in self._asked.asks) - len(self._mine)
        by_node: collections.Counter[str] = collections.Counter()
        for each in free:
            by_node[each.card.node] += each.free
        node, most = by_node.most_common(1)[0]
        are = _devices_are if any(each.free > 1 for each in free) else _are
        if most < need:
            rest = f"; {_obstacles(fitting)}" if len(free) < len(fitting) else ""
            said = (
                f"{wants} on one node, and at most {most} matching {are(most)} free on any "
                f"node ({node}){rest}."
            )
            return State.TOO_FEW_ON_ONE_NODE, [said]
        count = sum(by_node.values())
        first = f"{wants}, and {count} matching {are(count)} free, {most} of them on node {node}."
        if count == most:
            first = f"{wants}, and {count} matching {are(count)} free on node {node}."
        return State.NOT_SCHEDULED_YET, [first, self._scheduler_says()]

    def _scheduler_says(self) -> str:
        gates = (self._placement.spec.scheduling_gates if self._placement.spec else None) or []
        if gates:
            names = _list(each.name for each in gates)
            return f"It waits for its scheduling gates to be lifted: {names}."
        refused = [each for each in self._world.events if each.reason == _CLAIM_REFUSED]
        if refused:
            last = max(refused, key=lambda each: each.last_timestamp or "")
            return _ended(f"Its claim could not be made: {last.message}")
        found = _scheduled(self._pod)
        if found is None or not found.message:
            scheduler = (self._pod.spec.scheduler_name if self._pod.spec else None) or ""
            return f"The scheduler {scheduler or 'default-scheduler'} has not looked at it yet."
        return _ended(f"The scheduler last said: {found.message}")


def _scheduled(pod: Pod) -> PodCondition | None:
    found = (pod.status.conditions if pod.status else None) or []
    return next(
        (each for each in found if each.type == "PodScheduled" and each.status != conditions.TRUE),
        None,
    )


def _obstacles(fitting: list[Verdict]) -> str:
    """Say what becomes of the matching cards, the most frequent reason first."""
    counts = collections.Counter(each.reason for each in fitting)
    total = len(fitting)
    parts = []
    for reason, count in counts.most_common():
        clause = CLAUSES[reason][0 if count == 1 else 1]
        if len(_holders(fitting, reason)) > 1:
            clause = clause.replace("another pod", "other pods")
        named = _names(fitting, reason)
        parts.append((count, f"{clause}{named}"))
    if len(parts) == 1:
        subject = "the only matching card" if total == 1 else f"all {total} matching cards"
        return f"{subject} {parts[0][1]}"
    return f"of {total} matching cards " + _list(f"{count} {said}" for count, said in parts)


def _names(fitting: list[Verdict], reason: Reason) -> str:
    """Name who holds cards, or the one common cause."""
    if reason is Reason.MATCHES:
        return ""
    if reason in (Reason.HELD_BY_POD, Reason.HELD_BY_CLAIM):
        names = _holders(fitting, reason)
        more = len(names) - _SHOWN
        shown = names if more <= 1 else [*names[:_SHOWN], f"{more} more"]
        return f" ({_list(shown)})"
    details = {each.detail for each in fitting if each.reason is reason}
    detail = details.pop()
    return f" ({detail})" if not details and detail else ""


def _holders(fitting: list[Verdict], reason: Reason) -> list[str]:
    those = [each.card for each in fitting if each.reason is reason]
    return list(dict.fromkeys(each.text for card in those for each in card.holders))


def _rest(others: list[Verdict]) -> list[str]:
    """Say of the cards that do not match how many there are and why."""
    if not others:
        return []
    subject = "The other card does" if len(others) == 1 else f"The other {len(others)} cards do"
    return [_ended(f"{subject} not match{_reasons(others)}")]


def _reasons(others: list[Verdict]) -> str:
    """Say why cards do not match, where a sentence has room for it."""
    found = collections.Counter(each.detail for each in others).most_common()
    if len(found) == 1:
        return f": {found[0][0]}"
    said = "; ".join(f"{detail} ({count})" for detail, count in found)
    return f": {said}" if len(found) <= _SHOWN else ""


def _card(verdict: Verdict) -> str:
    card = verdict.card
    name = card.uuid or card.name
    part = f"{verdict.part} of " if verdict.part else ""
    return f"{part}{name} ({card.product})" if card.product else part + name


def _are(count: int) -> str:
    return "card is" if count == 1 else "cards are"


def _devices_are(count: int) -> str:
    return "device is" if count == 1 else "devices are"


def _list(parts: Iterable[str]) -> str:
    found = list(parts)
    if len(found) < 2:
        return "".join(found)
    return f"{', '.join(found[:-1])} and {found[-1]}"


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."
