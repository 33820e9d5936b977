# SPDX-License-Identifier: Apache-2.0
"""What is to be done to a node's cards so that they are partitioned as a config says. Pure.

It sees an inventory and returns a plan, which `applying` carries out; a plan without
actions says that all is as wanted. Cards that are so already are not touched, and of the
others as many partitions stay as can. A config that some card cannot fulfil is refused
as a whole, before anything is changed; a card that cannot be read now costs that card.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec

from gpudeck import errors
from gpudeck.mig import choosing, placing
from gpudeck.mig.placing import Instance
from gpudeck.vendors import contract, records

Mode = contract.PartitioningMode


class CardPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done to one card."""

    index: int | None
    """Number of the card on its node; None for one that is not there."""
    address: str
    product: str = ""
    enabled: bool
    kept: tuple[Instance, ...] = ()
    removed: tuple[Instance, ...] = ()
    made: tuple[Instance, ...] = ()
    """New ones, and those that are there half made and are finished."""
    changes_mode: bool = False
    resets: bool = False
    """The change of the mode may reset the card."""
    freed: tuple[str, ...] = ()
    """UUIDs that nobody may use meanwhile: of partitions that go, of a card whose mode changes."""
    actions: tuple[contract.Action, ...] = ()
    """In the order in which they are to be done."""
    problem: errors.GpudeckError | None = None
    """Why the card cannot be planned for now; then there are no actions."""


class Plan(msgspec.Struct, frozen=True):
    """For each card that is meant, by address."""

    cards: tuple[CardPlan, ...]
    notes: tuple[str, ...] = ()
    """What was passed over, one sentence each."""

    @property
    def is_done(self) -> bool:
        """All cards that are meant are as wanted."""
        return not any(card.actions or card.problem for card in self.cards)

    @property
    def changes_mode(self) -> bool:
        """Some card's mode is to change."""
        return any(card.changes_mode for card in self.cards)


def plan(
    config: choosing.Named,
    cards: Sequence[records.CardState],
    *,
    mode_only: bool = False,
    held: Collection[str] = (),
) -> Plan:
    """Plan for a config. `held` are UUIDs of partitions that stay before others do.

    Raises UnsupportedError, which names the field of the config, where a card cannot be as
    the config says, or no card of the node is meant.
    """
    chosen = choosing.choose(config, cards)
    planned = []
    for choice in chosen.choices:
        card = cards[choice.index]
        problem = choosing.problem(card)
        if problem is not None or card.reading is None:
            planned.append(_unready(choice, card, problem))
            continue
        target: tuple[Instance, ...] | None = None
        if choice.entry.enabled and not mode_only:
            target = _target(choice, card.reading, frozenset(held))
        planned.append(
            card_plan(choice.index, card.reading, enabled=choice.entry.enabled, target=target)
        )
    return Plan(tuple(planned), chosen.notes)


def _unready(
    choice: choosing.Choice, card: records.CardState, problem: errors.GpudeckError | None
) -> CardPlan:
    return CardPlan(
        index=choice.index,
        address=card.site.address,
        enabled=choice.entry.enabled,
        problem=problem or errors.UnavailableError("the card has not been read yet"),
    )


def _target(
    choice: choosing.Choice, card: contract.CardReading, held: frozenset[str]
) -> tuple[Instance, ...] | None:
    """Where the partitions are to lie; None where the driver tells profiles only in MIG mode."""
    if not card.profiles and card.mode is not Mode.ENABLED:
        return None
    wanted = choosing.resolve(choice, card)
    present = {each: uuids for each, uuids in instances(card).items() if is_whole(card, each)}
    placed = placing.place(
        placing.card(card),
        wanted,
        sorted(present),
        held=frozenset(each for each, uuids in present.items() if held.intersection(uuids)),
    )
    if placed is None:
        raise choosing.does_not_fit(choice, card)
    return placed


def instances(card: contract.CardReading) -> dict[Instance, tuple[str, ...]]:
    """What partitions there are, with the UUIDs in each: several where one was cut up again."""
    found: dict[Instance, tuple[str, ...]] = {}
    for each in card.partitions:
        profile = _profile_of(card, each)
        there = Instance(each.start, each.size, profile.profile_id, profile.name)
        found[there] = (*found.get(there, ()), *([each.uuid] if each.uuid else []))
    return found


def is_whole(card: contract.CardReading, there: Instance) -> bool:
    """Whether an instance is one partition, or can be made one: not cut up any further."""
    names = [each.profile for each in card.partitions if _lies(each, there) and each.uuid]
    return not names or names == [there.profile]


def _is_finished(card: contract.CardReading, there: Instance) -> bool:
    return any(each.uuid for each in card.partitions if _lies(each, there))


def _lies(each: contract.Partition, there: Instance) -> bool:
    return (each.start, each.size) == (there.start, there.size)


def _profile_of(card: contract.CardReading, each: contract.Partition) -> contract.PartitionProfile:
    for profile in card.profiles:
        if each.profile_id == profile.profile_id:
            return profile
    for profile in card.profiles:
        # Of one that was cut up the driver tells the part and the whole: 1c.3g.20gb.
        is_named = each.profile == profile.name or each.profile.endswith(f"c.{profile.name}")
        if each.profile_id is None and is_named:
            return profile
    raise errors.UnsupportedError(
        f"{card.address}: the partition {each.profile or each.profile_id} at {each.start} is of "
        "no profile that the driver tells, so it cannot be planned with; remove it by hand.",
        reason="PartitionUnknown",
    )


def card_plan(
    index: int,
    card: contract.CardReading,
    *,
    enabled: bool,
    target: Iterable[Instance] | None = None,
) -> CardPlan:
    """Plan for one card whose partitions are to lie so; None leaves those of MIG mode alone."""
    mode = Mode.ENABLED if enabled else Mode.DISABLED
    has_mode = card.mode is not Mode.NOT_AVAILABLE
    changes_mode = has_mode and mode is not card.mode
    switch: list[contract.Action] = []
    if changes_mode or (has_mode and mode is not card.pending_mode):
        may_reset = changes_mode and not card.dynamic
        switch.append(contract.SetPartitioning(enabled=enabled, may_reset=may_reset))
    kept, removed, made = _difference(card, target if enabled else ())
    removals = [
        contract.RemovePartition(profile_id=each.profile_id, placement=each.placement)
        for each in removed
    ]
    makings = [
        contract.MakePartition(profile_id=each.profile_id, placement=each.placement)
        for each in made
    ]
    return CardPlan(
        index=index,
        address=card.address,
        product=card.product_name,
        enabled=enabled,
        kept=kept,
        removed=removed,
        made=made,
        changes_mode=changes_mode,
        resets=changes_mode and not card.dynamic,
        freed=((card.uuid,) if changes_mode else ()) + _uuids(card, removed),
        actions=(*removals, *switch, *makings),
    )


_Instances = tuple[Instance, ...]


def _difference(
    card: contract.CardReading, target: Iterable[Instance] | None
) -> tuple[_Instances, _Instances, _Instances]:
    """What stays, what goes, and what is to be made or finished."""
    present = frozenset(instances(card))
    if target is None:
        return tuple(sorted(present)), (), ()
    wanted = frozenset(target)
    kept = {each for each in present & wanted if is_whole(card, each)}
    finished = {each for each in kept if _is_finished(card, each)}
    return tuple(sorted(finished)), tuple(sorted(present - kept)), tuple(sorted(wanted - finished))


def _uuids(card: contract.CardReading, gone: Iterable[Instance]) -> tuple[str, ...]:
    there = instances(card)
    return tuple(uuid for each in gone for uuid in there[each])


def counts(card: contract.CardReading) -> dict[str, int]:
    """What partitions of use a card has, by the driver's name of the profile."""
    found = Counter(each.profile for each in card.partitions if each.uuid)
    return dict(sorted(found.items()))
