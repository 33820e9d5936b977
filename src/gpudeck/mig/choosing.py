# SPDX-License-Identifier: Apache-2.0
"""Which entry of a config is meant for which card of a node, and what it asks of that card. Pure.

An entry is for the cards that its numbers and its filter both accept. A profile is looked
up on the very card (two models may number or size profiles of one name differently), by
the driver's name; `.me` is read for `+me` too, as labels and resources spell it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from gpudeck import errors
from gpudeck.devices import profiles
from gpudeck.mig import configs
from gpudeck.vendors import contract, records

Mode = contract.PartitioningMode


_OF_GROUPS = {"devices": "index", "mig-devices": "slices"}
"""What fields of an entry are called in `customConfigs` of a group."""


class Named(msgspec.Struct, frozen=True):
    """A config, and what errors call it and its fields."""

    name: str
    entries: configs.Config
    written: str = ""
    """The path at which a person wrote it, where that is in no file of configs but with a group
    of nodes; its fields have that group's names then."""

    def path(self, position: int, field: str = "") -> str:
        """Return how a field of an entry is called in errors."""
        root = self.written or configs.path(self.name)
        named = _OF_GROUPS[field] if self.written and field else field
        return f"{root}[{position}]" + (f".{named}" if named else "")


class Choice(msgspec.Struct, frozen=True):
    """The entry that is for a card."""

    index: int
    """Number of the card."""
    config: Named
    position: int
    """Number of the entry in its config."""

    @property
    def entry(self) -> configs.Entry:
        return self.config.entries[self.position]

    def path(self, field: str = "") -> str:
        """Return how a field of the entry is called in errors."""
        return self.config.path(self.position, field)


class Chosen(msgspec.Struct, frozen=True):
    choices: tuple[Choice, ...]
    """By the number of the card; cards that no entry is for are left as they are."""
    notes: tuple[str, ...]


def choose(config: Named, cards: Sequence[records.CardState]) -> Chosen:
    """Return the entry for each card, those left out that cannot have partitions and need none.

    Of several entries that are for a card the last counts. Raises UnsupportedError where an
    entry wants partitions of a card by its number that has no MIG, or where cards could be
    partitioned and the config is for none of them.
    """
    notes = list(_absent(config, len(cards)))
    choices = [
        choice
        for index, card in enumerate(cards)
        if (choice := _choice(config, index, card, notes)) is not None
    ]
    capable = [card for card in cards if _is_capable(card)]
    if capable and not choices:
        ids = ", ".join(sorted({_id(card) for card in capable}))
        raise errors.UnsupportedError(
            f"{config.written or configs.path(config.name)}: no entry is for a card of this node; "
            f"its cards are {ids}",
            reason="NoCardChosen",
        )
    return Chosen(tuple(choices), tuple(notes))


def _absent(config: Named, count: int) -> Iterator[str]:
    for position, entry in enumerate(config.entries):
        beyond = [each for each in entry.devices or () if each >= count]
        if beyond:
            field = config.path(position, "devices")
            listed = ", ".join(map(str, beyond))
            yield f"{field}: the node has {count} cards, so there is no card {listed}."


def _choice(config: Named, index: int, card: records.CardState, notes: list[str]) -> Choice | None:
    found: Choice | None = None
    is_passed = False
    for position, entry in enumerate(config.entries):
        if not _accepts(entry, index, card):
            continue
        if card.reading is not None and card.reading.mode is Mode.NOT_AVAILABLE:
            if entry.enabled and entry.devices is not None:
                raise errors.UnsupportedError(
                    f"{config.path(position)}: card {index} "
                    f"({card.site.address}, {card.reading.product_name}) has no MIG",
                    reason="PartitioningNotAvailable",
                )
            continue
        if not card.site.served and entry.devices is None:
            is_passed = True
            continue
        if found is not None and not _agree(found.entry, entry):
            # So nvidia-mig-parted ends up too, after it has done the earlier one in vain.
            notes.append(
                f"{config.path(position)}: card {index} ({card.site.address}) is "
                f"partitioned by this entry, the last that is for it, and not by {found.position}."
            )
        found = Choice(index, config, position)
    if is_passed and found is None:
        notes.append(f"Card {index} ({card.site.address}) is passed over: {_driver(card)}.")
    return found


def _accepts(entry: configs.Entry, index: int, card: records.CardState) -> bool:
    if entry.devices is not None and index not in entry.devices:
        return False
    site = card.site
    return not entry.filters or any(
        each.accepts(site.pci_id, site.subsystem_id) for each in entry.filters
    )


def _agree(one: configs.Entry, other: configs.Entry) -> bool:
    return one.enabled == other.enabled and dict(one.counts) == dict(other.counts)


def _is_capable(card: records.CardState) -> bool:
    if card.reading is None or not card.site.served:
        return False
    return card.reading.mode is not Mode.NOT_AVAILABLE


def _driver(card: records.CardState) -> str:
    return f"it is bound to {card.site.driver}" if card.site.driver else "no driver is bound"


def _id(card: records.CardState) -> str:
    name = card.reading.product_name if card.reading is not None else card.site.address
    return f"{name} (0x{card.site.pci_id:08X})" if card.site.pci_id is not None else name


def problem(card: records.CardState) -> errors.GpudeckError | None:
    """Return why a card cannot be changed now; None where it can."""
    if card.reading is not None and card.site.served:
        return None
    said = card.driver.message if not card.driver.ready else card.health.message
    return errors.UnavailableError(
        f"{card.site.address}: the card cannot be read now. {said}", reason="CardNotReady"
    )


def unread(cards: Sequence[records.CardState]) -> errors.GpudeckError | None:
    """Return why nothing is known of any card; None where something is, or there is no card."""
    problems = [problem(card) for card in cards]
    return problems[0] if problems and all(problems) else None


def resolve(choice: Choice, card: contract.CardReading) -> dict[int, int]:
    """Return how many partitions are wanted by the card's own numbers of its profiles.

    Raises UnsupportedError for a profile that the card does not have.
    """
    wanted: Counter[int] = Counter()
    for profile, count in choice.entry.counts.items():
        wanted[_profile(choice, card, profile).profile_id] += count
    return dict(wanted)


def _profile(choice: Choice, card: contract.CardReading, name: str) -> contract.PartitionProfile:
    for spelled in (str, profiles.spelled):
        for profile in card.profiles:
            if spelled(profile.name) == spelled(name):
                return profile
    field = f'{choice.path("mig-devices")}["{name}"]'
    which = f"card {choice.index} ({card.address}, {card.product_name})"
    if "c." in name:
        raise errors.UnsupportedError(
            f"{field}: a partition that is cut up again cannot be handed out; allowed: "
            f"{name.partition('c.')[2]}, the whole one",
            reason="PartitionUnsupported",
        )
    has = ", ".join(each.name for each in card.profiles) or "none"
    raise errors.UnsupportedError(
        f"{field}: {which} has no such profile; it has: {has}", reason="PartitionUnsupported"
    )


def does_not_fit(choice: Choice, card: contract.CardReading) -> errors.UnsupportedError:
    """Return the error for partitions that a card cannot hold side by side."""
    field = choice.path("mig-devices")
    wanted = " + ".join(f"{count} x {name}" for name, count in choice.entry.counts.items())
    return errors.UnsupportedError(
        f"{field}: {wanted} do not fit on card {choice.index} ({card.address}, "
        f"{card.product_name}) side by side",
        reason="PartitionsDoNotFit",
    )
