# SPDX-License-Identifier: Apache-2.0
"""Carries a plan out, card by card, through whoever may change cards.

A card that fails does not keep the others from being done. Its own partitions are put
back where they were, unless its mode was changed before: so a card in use goes on as it
was. After an end at any instruction the next plan goes on from what is there then.
Nothing here frees a card of those who use it: the driver
refuses then (BusyError), and the caller has to see to that first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from gpudeck import errors, logs
from gpudeck.mig import planning
from gpudeck.vendors import contract

log = logs.get(__name__)


class Cards(Protocol):
    """Who changes cards; after each call a new look at a card shows what was done."""

    async def act(self, address: str, action: contract.Action) -> contract.Partition | None:
        """`Supervisor.act`."""

    async def switch(self, wanted: Mapping[str, bool]) -> Mapping[str, errors.GpudeckError]:
        """`Supervisor.switch`."""


_ROUNDS = 3
"""The mode; profiles that the driver tells only in that mode; a partition that went meanwhile."""


class Failure(msgspec.Struct, frozen=True):
    """A card that is not as wanted, and why."""

    address: str
    error: errors.GpudeckError


class Outcome(msgspec.Struct, frozen=True):
    """What came of it."""

    plan: planning.Plan
    """The last one; done if there is no failure."""
    changes: int = 0
    """Actions that were done and not taken back."""
    failures: tuple[Failure, ...] = ()


async def reach(make_plan: Callable[[], planning.Plan], cards: Cards) -> Outcome:
    """Plan and act until a new plan has nothing to do, or a card fails.

    `make_plan` looks at the cards anew each time. Raises what it raises.
    """
    changes = 0
    for _ in range(_ROUNDS):
        plan = make_plan()
        if plan.is_done:
            return Outcome(plan, changes)
        done, failures = await apply(plan, cards)
        changes += done
        if failures:
            return Outcome(make_plan(), changes, failures)
    plan = make_plan()
    return Outcome(plan, changes, tuple(map(_unreached, _open(plan))))


async def apply(plan: planning.Plan, cards: Cards) -> tuple[int, tuple[Failure, ...]]:
    """Carry a plan out; return how many actions stand, and the cards that failed.

    Cards whose mode changes by a reset are reset together, since a reset takes seconds.
    """
    courses = [_Course(each, cards) for each in plan.cards]
    for course in courses:
        await course.go_on()
    waiting = {each.card.address: each.card.enabled for each in courses if each.waits}
    failed = await cards.switch(waiting) if waiting else {}
    for course in courses:
        if course.waits:
            await course.switched(failed.get(course.card.address))
            await course.go_on()
    return sum(each.done for each in courses), tuple(
        Failure(each.card.address, each.error) for each in courses if each.error is not None
    )


class _Course:
    """What has become of one card's plan."""

    def __init__(self, card: planning.CardPlan, cards: Cards) -> None:
        self.card = card
        self.error = card.problem
        self.done = 0
        """How many of its actions stand."""
        self._cards = cards

    @property
    def waits(self) -> bool:
        """The next action is one that resets the card."""
        left = self.card.actions[self.done :]
        return self.error is None and bool(left) and _resets(left[0])

    async def go_on(self) -> None:
        """Do what is to be done, up to a reset."""
        while self.error is None and self.done < len(self.card.actions) and not self.waits:
            try:
                await self._cards.act(self.card.address, self.card.actions[self.done])
            except errors.GpudeckError as error:
                await self._fail(error)
            else:
                self.done += 1

    async def switched(self, error: errors.GpudeckError | None) -> None:
        """Take what came of the reset."""
        if error is None:
            self.done += 1
        else:
            await self._fail(error)

    async def _fail(self, error: errors.GpudeckError) -> None:
        log.warning("Cannot partition card", card=self.card.address, why=error.message)
        self.error = error
        self.done = await _put_back(self.card, self.card.actions[: self.done], self._cards)


def _resets(action: contract.Action) -> bool:
    return isinstance(action, contract.SetPartitioning) and action.may_reset


async def _put_back(card: planning.CardPlan, done: Sequence[contract.Action], cards: Cards) -> int:
    """Take back what was done to a card, if no mode changed; return how much of it stands.

    Best effort: the error that led here is what has to be told.
    """
    if any(isinstance(action, contract.SetPartitioning) for action in done):
        return len(done)
    for left, action in reversed(list(enumerate(done))):
        try:
            await cards.act(card.address, _opposite(action))
        except errors.GpudeckError as error:
            log.warning("Cannot put partition back", card=card.address, why=error.message)
            return left + 1
    return 0


def _opposite(action: contract.Action) -> contract.Action:
    match action:
        case contract.MakePartition(profile_id=profile_id, placement=placement):
            return contract.RemovePartition(profile_id=profile_id, placement=placement)
        case contract.RemovePartition(profile_id=profile_id, placement=placement):
            return contract.MakePartition(profile_id=profile_id, placement=placement)
    raise TypeError(f"{type(action).__name__} is not taken back")


def _open(plan: planning.Plan) -> list[planning.CardPlan]:
    return [card for card in plan.cards if card.actions or card.problem]


def _unreached(card: planning.CardPlan) -> Failure:
    return Failure(
        card.address,
        card.problem
        or errors.ConflictError(
            f"{card.address}: the card is not as it was made; something else changes its "
            "partitions too.",
            reason="PartitionsChanged",
        ),
    )
