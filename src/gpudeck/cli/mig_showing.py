# SPDX-License-Identifier: Apache-2.0
"""What the commands of `gpudeck mig` print: plans, outcomes and configs, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from gpudeck.cli import output
from gpudeck.mig import applying, configs, placing, planning


def show_configs(by_name: dict[str, configs.Config], output_format: str) -> None:
    """Print a file of configs."""
    if output_format == "json":
        output.show_json(configs.document(by_name))
    else:
        output.show(configs.write(by_name).rstrip("\n"))


def show_outcome(outcome: applying.Outcome, *, as_json: bool) -> None:
    """Print what came of a plan; errors go to stderr."""
    failures = {each.address: str(each.error) for each in outcome.failures}
    if as_json:
        more = {"changes": outcome.changes, "failures": failures}
        output.show_json({**_plain(outcome.plan), **more})
    else:
        show_notes(outcome.plan.notes)
        output.show(_concluded(outcome))
    for failure in failures.values():
        click.echo(f"error: {failure}", err=True)


def _concluded(outcome: applying.Outcome) -> str:
    count = len(outcome.plan.cards)
    if outcome.failures:
        return f"{len(outcome.failures)} of {count} cards could not be done"
    return f"cards as wanted: {count}, changes made: {outcome.changes}"


def show_plan(plan: planning.Plan, *, as_json: bool) -> None:
    """Print what is to be done to each card."""
    if as_json:
        output.show_json(_plain(plan))
        return
    show_notes(plan.notes)
    rows = [
        (
            card.index,
            card.address,
            card.product,
            _mode(card),
            _listed(card.kept),
            _listed(card.removed),
            _listed(card.made),
        )
        for card in plan.cards
    ]
    output.show(output.table(("CARD", "ADDRESS", "MODEL", "MIG", "STAY", "GO", "NEW"), rows))
    for card in plan.cards:
        if card.problem is not None:
            click.echo(f"note: {card.problem}", err=True)


def show_notes(notes: Iterable[str]) -> None:
    """Print what was mended or passed over, to stderr."""
    for note in notes:
        click.echo(f"note: {note}", err=True)


def _mode(card: planning.CardPlan) -> str:
    word = "on" if card.enabled else "off"
    if not card.changes_mode:
        return word
    return f"turn {word}, reset" if card.resets else f"turn {word}"


def _listed(partitions: tuple[placing.Instance, ...]) -> str:
    return ", ".join(f"{each.profile}@{each.start}" for each in partitions)


def _plain(plan: planning.Plan) -> dict[str, Any]:
    cards = [
        {
            "index": card.index,
            "address": card.address,
            "product": card.product,
            "enabled": card.enabled,
            "changesMode": card.changes_mode,
            "resets": card.resets,
            "freed": card.freed,
            "stay": _places(card.kept),
            "go": _places(card.removed),
            "new": _places(card.made),
            "problem": str(card.problem) if card.problem is not None else None,
        }
        for card in plan.cards
    ]
    return {"done": plan.is_done, "notes": plan.notes, "cards": cards}


def _places(partitions: tuple[placing.Instance, ...]) -> list[dict[str, Any]]:
    return [
        {"profile": each.profile, "start": each.start, "size": each.size} for each in partitions
    ]
