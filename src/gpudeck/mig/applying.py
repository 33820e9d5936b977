# SPDX-License-Identifier: Apache-2.0
"""Carries a plan out, card by card, through whoever may change cards.

A card that fails does not keep the others from being done. Its own partitions are put
back where they were, unless its mode was changed before: so a card in use goes on as it
was. After an end at any instruction the next plan goes on from what is there then.
Nothing here frees a card of those who use it: the driver
refuses then (BusyError), and the caller has to see to that first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from gpudeck import errors, logs
from gpudeck.mig import planning
from gpudeck.vendors import contract

log = logs.get(__name__)

Act = Callable[[str, contract.Action], Awaitable[contract.Partition | None]]
"""`Supervisor.act`: when it returns, a new look at the card shows what was done."""

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


async def reach(make_plan: Callable[[], planning.Plan], act: Act) -> Outcome:
    """Plan and act until a new plan has nothing to do, or a card fails.

    `make_plan` looks at the cards anew each time. Raises what it raises.
    """
    changes = 0
    for _ in range(_ROUNDS):
        plan = make_plan()
        if plan.is_done:
            return Outcome(plan, changes)
        done, failures = await apply(plan, act)
        changes += done
        if failures:
            return Outcome(make_plan(), changes, failures)
    plan = make_plan()
    return Outcome(plan, changes, tuple(map(_unreached, _open(plan))))


async def apply(plan: planning.Plan, act: Act) -> tuple[int, tuple[Failure, ...]]:
    """Carry a plan out; return how many actions stand, and the cards that failed."""
    changes, failures = 0, []
    for card in plan.cards:
        if card.problem is not None:
            failures.append(Failure(card.address, card.problem))
            continue
        done, error = await _apply(card, act)
        changes += done
        if error is not None:
            log.warning("Cannot partition card", card=card.address, why=error.message)
            failures.append(Failure(card.address, error))
    return changes, tuple(failures)


async def _apply(card: planning.CardPlan, act: Act) -> tuple[int, errors.GpudeckError | None]:
    for done, action in enumerate(card.actions):
        try:
            await act(card.address, action)
        except errors.GpudeckError as error:
            return await _put_back(card, card.actions[:done], act), error
    return len(card.actions), None


async def _put_back(card: planning.CardPlan, done: Sequence[contract.Action], act: Act) -> int:
    """Take back what was done to a card, if no mode changed; return how much of it stands.

    Best effort: the error that led here is what has to be told.
    """
    if any(isinstance(action, contract.SetPartitioning) for action in done):
        return len(done)
    for left, action in reversed(list(enumerate(done))):
        try:
            await act(card.address, _opposite(action))
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
