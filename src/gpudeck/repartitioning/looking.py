# SPDX-License-Identifier: Apache-2.0
"""A node's cards, read for a config and changed to be as it says.

The maker's library is held only while that takes: between looks no process of ours has a
card open, so nothing of ours stands in the way of a reset by others. What is found is a
value that the next step is worked out from; `stepping` decides, nothing here does.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Iterable, Sequence

import msgspec

from gpudeck import errors
from gpudeck.kubelet import listing
from gpudeck.mig import applying, attending, configs, nodes, planning
from gpudeck.repartitioning import sources
from gpudeck.vendors import contract, records

Find = Callable[[Sequence[records.CardState]], sources.Found]
"""The config that is wanted, of cards that may offer it. Raises GpudeckError."""


_DAEMON_SECONDS = 30.0
"""How long the MPS daemon of a card may take to end."""
_LOOK_SECONDS = 0.2


class Failure(msgspec.Struct, frozen=True):
    """A card that is not as wanted, and why; or that none could be changed."""

    reason: str
    message: str
    is_passing: bool = False
    """Nothing was changed, and the same attempt may succeed later."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done for a config, as the cards are now."""

    name: str
    digest: str = ""
    """Of what the config says."""
    error: errors.GpudeckError | None = None
    """Why nothing can be said."""
    is_done: bool = False
    can_change: bool = False
    """Some card can be changed now."""
    freed: frozenset[str] = frozenset()
    """UUIDs of cards and partitions that nobody may hold meanwhile."""
    failures: tuple[Failure, ...] = ()
    """Cards that cannot be planned for."""
    fingerprint: str = ""
    """Of what is to be done: another one is another change."""
    notes: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    """Services of the host that may have cards open."""

    def holders(self, pods: Iterable[listing.Pod]) -> tuple[nodes.Pod, ...]:
        """Which pods hold what nobody may hold."""
        return holders(self.freed, pods)


def holders(uuids: frozenset[str], pods: Iterable[listing.Pod]) -> tuple[nodes.Pod, ...]:
    """Which pods hold any of them."""
    return tuple(
        nodes.Pod(each.namespace, each.name)
        for each in pods
        if not uuids.isdisjoint(map(whole, each.devices))
    )


def whole(device: str) -> str:
    """The UUID in the id of a device: shares of one have numbers of their own."""
    return device.partition("::")[0]


def held(pods: Iterable[listing.Pod]) -> frozenset[str]:
    """UUIDs that some pod holds."""
    return frozenset(whole(device) for pod in pods for device in pod.devices)


async def look(place: attending.Place, name: str, find: Find, pods: Sequence[listing.Pod]) -> Look:
    """Read the cards. What pods hold stays before what nobody holds."""
    digest, fingerprint = "", ""
    try:
        async with attending.attended(place) as cards:
            found = find(cards.now)
            digest = digest_of(found)
            plan = planning.plan(found.config, cards.now, held=held(pods))
            return _look(found, plan, cards.now)
    except errors.GpudeckError as error:
        fingerprint = error.reason
        return Look(name=name, digest=digest, error=error, fingerprint=fingerprint)


def digest_of(found: sources.Found) -> str:
    """Tell what configs say apart, whatever they are called."""
    return _digest(configs.document({"": found.config.entries}))


def _digest(content: object) -> str:
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:16]


def _look(found: sources.Found, plan: planning.Plan, cards: Sequence[records.CardState]) -> Look:
    todo = [
        (each.address, each.problem.reason if each.problem else "", each.actions)
        for each in plan.cards
        if each.actions or each.problem
    ]
    return Look(
        name=found.config.name,
        digest=digest_of(found),
        is_done=plan.is_done,
        can_change=any(each.actions for each in plan.cards),
        freed=freed(plan, cards),
        failures=tuple(
            Failure(each.problem.reason, each.problem.message)
            for each in plan.cards
            if each.problem is not None
        ),
        fingerprint=_digest(todo),
        notes=(*found.notes, *plan.notes),
    )


def freed(plan: planning.Plan, cards: Sequence[records.CardState]) -> frozenset[str]:
    """What nobody may hold: partitions that go, and cards of which any goes or comes.

    Whoever holds a card whole (migStrategy none hands out cards that are partitioned, too)
    is disturbed by any change of it.
    """
    uuids = {each.site.address: each.reading.uuid for each in cards if each.reading is not None}
    changed = [each for each in plan.cards if each.actions]
    found = {uuid for each in changed for uuid in each.freed}
    return frozenset(found | {uuids[each.address] for each in changed if each.address in uuids})


async def apply(
    place: attending.Place, find: Find, pods: Sequence[listing.Pod]
) -> tuple[Failure, ...]:
    """Change the cards; return what failed. `pods` are asked about just before.

    Nothing is changed while a pod holds what would change.
    """
    try:
        async with attending.attended(place, changing=True) as cards:

            def make_plan() -> planning.Plan:
                found = find(cards.now)
                plan = planning.plan(found.config, cards.now, held=held(pods))
                there = holders(freed(plan, cards.now), pods)
                if there:
                    raise errors.BusyError(
                        f"pods hold what is to change: {errors.listed(map(str, there))}",
                        reason="PodsHoldCards",
                    )
                return plan

            await _end_daemons(cards, make_plan())
            outcome = await applying.reach(make_plan, cards)
    except errors.GpudeckError as error:
        passing = isinstance(error, errors.RetryableError)
        return (Failure(error.reason, error.message, is_passing=passing),)
    return tuple(Failure(each.error.reason, each.error.message) for each in outcome.failures)


async def _end_daemons(cards: attending.Cards, plan: planning.Plan) -> None:
    """Take back the wishes for MPS daemons of cards that change, and wait until those have ended.

    A daemon has its card open, which keeps the card from being reset. Nobody works by it:
    the pods are gone. The device plugin wishes for one again where the config still says so.
    """
    changing = {each.address for each in plan.cards if each.changes_mode}
    served = [
        each.reading
        for each in cards.now
        if each.reading is not None and each.reading.mps_shares and each.site.address in changing
    ]
    for card in served:
        await cards.act(card.address, contract.LeaveMps())
    with contextlib.suppress(TimeoutError):  # Then the reset says what has the card open.
        async with asyncio.timeout(_DAEMON_SECONDS):
            for card in served:
                use = contract.Use(card=card)
                while await asyncio.to_thread(cards.vendor.pending, use):  # noqa: ASYNC110 - files.
                    await asyncio.sleep(_LOOK_SECONDS)
