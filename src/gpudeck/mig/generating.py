# SPDX-License-Identifier: Apache-2.0
"""Configs for the cards of one node, from what they say themselves. Pure.

The names are those of `defaults`, so a label means the same on every node; the profiles
and counts are the driver's, so they are right for models and firmware that nobody has
listed. What does not fit together on a card is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gpudeck.mig import configs, defaults, placing
from gpudeck.vendors import contract, records


class _Kind(msgspec.Struct, frozen=True):
    """Cards of a node that are alike."""

    card: contract.CardReading
    """One of them."""
    pci_id: int | None
    indexes: tuple[int, ...]


def generate(cards: Sequence[records.CardState]) -> dict[str, configs.Config]:
    """Return the configs that some card can have; entries for kinds that cannot are left out."""
    kinds = _kinds(cards)
    found = defaults.start()
    names: dict[str, list[tuple[_Kind, Mapping[str, int]]]] = {}
    for kind in kinds:
        for profile in kind.card.profiles:
            names.setdefault(defaults.name_of(profile.name), []).append(
                (kind, {profile.name: profile.max_instances})
            )
    names[defaults.BALANCED] = [(kind, counts) for kind in kinds if (counts := balanced(kind.card))]
    for name, wanted in names.items():
        entries = tuple(
            _entry(kind, counts, kinds) for kind, counts in wanted if _fits(kind.card, counts)
        )
        if entries:
            found[name] = entries
    return found


def _kinds(cards: Sequence[records.CardState]) -> list[_Kind]:
    found: dict[tuple[object, ...], _Kind] = {}
    for index, card in enumerate(cards):
        reading = card.reading
        if reading is None or not card.site.served:
            continue
        if reading.mode is contract.PartitioningMode.NOT_AVAILABLE:
            continue
        key = (card.site.pci_id, reading.total_slices, reading.profiles)
        known = found.get(key)
        indexes = (*known.indexes, index) if known else (index,)
        found[key] = _Kind(reading, card.site.pci_id, indexes)
    return list(found.values())


def _entry(kind: _Kind, counts: Mapping[str, int], kinds: Sequence[_Kind]) -> configs.Entry:
    """An entry that is for cards of one kind alone."""
    if len(kinds) == 1:
        return configs.Entry(enabled=True, counts=counts)
    ids = [each.pci_id for each in kinds]
    if kind.pci_id is not None and ids.count(kind.pci_id) == 1:
        return configs.Entry(enabled=True, counts=counts, filters=(configs.Filter(kind.pci_id),))
    return configs.Entry(enabled=True, counts=counts, devices=kind.indexes)


def balanced(card: contract.CardReading) -> dict[str, int]:
    """Return a mixture of sizes: on seven slices 2 x 1g, 2g and 3g, on four 2 x 1g and 2g.

    Of profiles with so many slices the one with the least memory is meant, without media
    engines or graphics of its own. Empty where the card has no such.
    """
    sizes = {1: 2, 2: 1, 3: 1} if card.total_slices >= 7 else {1: 2, 2: 1}
    plain = [each for each in card.profiles if not set(each.name) & set("+-")]
    found = {}
    for slices, count in sizes.items():
        of_size = [each for each in plain if each.slices == slices]
        if not of_size:
            return {}
        found[min(of_size, key=lambda each: (each.memory_mib, each.profile_id)).name] = count
    return found


def _fits(card: contract.CardReading, counts: Mapping[str, int]) -> bool:
    ids = {each.name: each.profile_id for each in card.profiles}
    wanted = {ids[name]: count for name, count in counts.items()}
    return placing.place(placing.card(card), wanted) is not None
