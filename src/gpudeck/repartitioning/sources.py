# SPDX-License-Identifier: Apache-2.0
"""Which config a name means on a node: sources are asked in order, the first that has it counts.

Pure. The ConfigMap that the administrator named comes first, then those of node groups,
then the configs that the node's own cards offer, in the end the shipped ones for all
models. A ConfigMap that cannot be read ends the search: what it would have said is not
known, and a config of the same name from elsewhere may say something else.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpudeck import errors
from gpudeck.api import labels
from gpudeck.errors import InvalidError, NotFoundError
from gpudeck.mig import choosing, configs, generating
from gpudeck.vendors import records


class Source(msgspec.Struct, frozen=True):
    """A ConfigMap: its namespace and name, and the text of its key; None where it is not there."""

    name: str
    text: str | None
    is_needed: bool = False
    """An administrator named it, so it is wrong that it is missing."""
    written: str = ""
    """Where people wrote its configs, and others that they chose, by name as JSON."""

    def place(self, name: str) -> str:
        """Return where people wrote a config, or chose it; empty where nobody knows."""
        try:
            return msgspec.json.decode(self.written or "{}", type=dict[str, str]).get(name, "")
        except msgspec.DecodeError:
            return ""  # It is there for messages alone.


class Found(msgspec.Struct, frozen=True):
    config: choosing.Named
    notes: tuple[str, ...] = ()
    """What was mended when it was read."""


def find(
    name: str,
    before: Sequence[Source],
    after: Sequence[Source],
    cards: Sequence[records.CardState],
) -> Found:
    """Return the config of that name; the cards' own are asked between `before` and `after`.

    Raises InvalidError, by field, for a ConfigMap that is wrong, and NotFoundError where
    one is missing that is needed, or nothing has a config of that name. UnavailableError where
    no card can be read, and so nobody knows whether the cards offer it.
    """
    known: list[str] = []
    for source in before:
        found = _in(source, name, known)
        if found is not None:
            return found
    offered = generating.generate(cards)
    if name in offered:
        return Found(choosing.Named(name, offered[name]))
    known += offered
    for source in after:
        # Its names are not told: those of other models are of no use on this node.
        found = _in(source, name, [])
        if found is not None:
            return found
    unread = choosing.unread(cards)
    if unread is not None:
        raise unread
    chosen = "".join(f" ({each.place(name)})" for each in before if each.place(name))
    raise NotFoundError(
        f"label {labels.MIG_CONFIG}{chosen}: there is no config {name!r}; "
        f"allowed: {errors.listed(dict.fromkeys(known))}",
        reason="NoSuchMigConfig",
    )


def _in(source: Source, name: str, known: list[str]) -> Found | None:
    where = f"ConfigMap {source.name}"
    if source.text is None:
        if not source.is_needed:
            return None
        raise NotFoundError(
            f"{where}: it is not there, or has no key {configs.KEY}; it is to hold the configs",
            reason="MigConfigMapMissing",
        )
    try:
        found = configs.read(source.text)
    except InvalidError as error:
        raise error.inside(where) from error
    if name in found.by_name:
        notes = tuple(f"{where}: {each}" for each in found.notes)
        named = choosing.Named(name, found.by_name[name], source.place(name))
        return Found(named, notes)
    known += found.by_name
    return None
