# SPDX-License-Identifier: Apache-2.0
"""How exactly a node's cards are partitioned, to be written down and made again. Pure.

Unlike a config it says where each partition lies. Cards are known again by UUID, for an
address may belong to another card after a repair. UUIDs of partitions are the driver's
and are not kept: a partition that was made again may have another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from gpudeck import errors
from gpudeck.mig import placing, planning
from gpudeck.mig.placing import Instance
from gpudeck.vendors import contract, records

VERSION = "gpudeck.mig/v1"

Mode = contract.PartitioningMode


class KeptPartition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    profile: str
    start: int
    size: int


class KeptCard(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    uuid: str
    address: str
    """For people; the card is found by its UUID."""
    enabled: bool
    partitions: tuple[KeptPartition, ...] = ()


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: str
    cards: tuple[KeptCard, ...]


def take(cards: Sequence[records.CardState]) -> Checkpoint:
    """Write down how cards are partitioned.

    Raises UnavailableError for a card that cannot be read, UnsupportedError for a partition
    that is cut up again, which could not be made again.
    """
    return Checkpoint(VERSION, tuple(_kept(cards)))


def _kept(cards: Sequence[records.CardState]) -> Iterator[KeptCard]:
    for card in cards:
        reading = card.reading
        if reading is None:
            raise errors.UnavailableError(
                f"{card.site.address}: the card cannot be read, so nothing is written down. "
                f"{card.health.message}",
                reason="CardNotReady",
            )
        if reading.mode is Mode.NOT_AVAILABLE:
            continue
        there = planning.instances(reading)
        for each in there:
            if not planning.is_whole(reading, each):
                raise errors.UnsupportedError(
                    f"{reading.address}: the partition {each.profile} at {each.start} is cut up "
                    "again, which cannot be made again; remove it first.",
                    reason="PartitionSplit",
                )
        yield KeptCard(
            uuid=reading.uuid,
            address=reading.address,
            enabled=reading.mode is Mode.ENABLED,
            partitions=tuple(
                KeptPartition(each.profile, each.start, each.size) for each in sorted(there)
            ),
        )


def encode(checkpoint: Checkpoint) -> bytes:
    """Return the content of a file."""
    return msgspec.json.format(msgspec.json.encode(checkpoint), indent=2) + b"\n"


def decode(content: bytes, source: str) -> Checkpoint:
    """Read the content of a file. Raises InvalidError that names the field."""
    try:
        found = msgspec.json.decode(content, type=Checkpoint)
    except msgspec.MsgspecError as error:
        raise _refusal(source, str(error), "what `gpudeck mig checkpoint` wrote") from error
    if found.version != VERSION:
        raise _refusal(f"{source}: version", found.version, VERSION)
    return found


def _refusal(field: str, value: str, allowed: str) -> errors.InvalidError:
    return errors.not_valid(field, value, allowed, reason="InvalidCheckpoint")


def plan(checkpoint: Checkpoint, cards: Sequence[records.CardState]) -> planning.Plan:
    """Plan for the cards to be as they were; others are left alone.

    One that cannot be read, or is gone, is a problem of that card. Raises UnsupportedError
    for a partition that the card does not offer at its place any more.
    """
    known = {
        card.reading.uuid: (index, card.reading)
        for index, card in enumerate(cards)
        if card.reading is not None and card.site.served
    }
    planned = []
    for kept in checkpoint.cards:
        if kept.uuid not in known:
            planned.append(_missing(kept))
            continue
        index, reading = known[kept.uuid]
        target = [_instance(reading, each) for each in kept.partitions]
        planned.append(planning.card_plan(index, reading, enabled=kept.enabled, target=target))
    return planning.Plan(tuple(planned))


def _missing(kept: KeptCard) -> planning.CardPlan:
    problem = errors.UnavailableError(
        f"{kept.uuid}, which was at {kept.address}, cannot be read or is gone.",
        reason="CardNotReady",
    )
    return planning.CardPlan(
        index=None, address=kept.address, enabled=kept.enabled, problem=problem
    )


def _instance(card: contract.CardReading, kept: KeptPartition) -> Instance:
    for profile in card.profiles:
        place = contract.Placement(start=kept.start, size=kept.size)
        if profile.name == kept.profile and place in profile.placements:
            return placing.Instance(kept.start, kept.size, profile.profile_id, profile.name)
    raise errors.UnsupportedError(
        f"{card.address}: the card offers no {kept.profile} of {kept.size} slices at "
        f"{kept.start} (any more)",
        reason="PartitionUnsupported",
    )
