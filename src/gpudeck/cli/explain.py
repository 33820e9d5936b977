# SPDX-License-Identifier: Apache-2.0
"""`gpudeck explain pod NS/NAME`: why a pod waits for a card, or which cards it holds.

Read-only. The answer comes first, in one or two sentences; then every card of the
cluster with the one reason why it is not the pod's.
"""

from __future__ import annotations

import click

from gpudeck import errors
from gpudeck.cli import output, reading
from gpudeck.explaining import answering, asking
from gpudeck.explaining.answering import Answer, State
from gpudeck.explaining.reasons import MEANINGS, Reason
from gpudeck.kube.client import Client

_WITHOUT_TABLE = (State.ASKS_NO_CARD, State.ENDED, State.NAMES_WHAT_IS_NOT_THERE)
"""Answers for people to which the cards add nothing."""


@click.group()
def explain() -> None:
    """Say why a pod waits for a card, or which it holds."""


@explain.command()
@click.argument("pod", metavar="[NAMESPACE/]NAME")
@click.option("-n", "--namespace", default="", help="Of the pod; default: that of the context.")
@reading.connecting
def pod(*, pod: str, namespace: str, server: reading.Server, as_json: bool) -> None:
    """Explain one pod."""
    answer = reading.run(server, lambda client: _answer(client, pod, namespace))
    if as_json:
        output.show_json(as_object(answer))
    else:
        output.show(as_text(answer))


async def _answer(client: Client, text: str, chosen: str) -> Answer:
    given, _, name = text.rpartition("/")
    if not name or "/" in given or (given and chosen not in ("", given)):
        allowed = f"NAME or {chosen or 'NAMESPACE'}/NAME"
        raise errors.not_valid("pod", text, allowed)
    namespace = given or chosen or client.namespace
    world = await reading.world(client)
    try:
        found, placement = await reading.pod(client, namespace, name, world)
    except errors.NotFoundError as error:
        close = asking.near(name, await reading.pod_names(client, namespace))
        raise errors.NotFoundError(
            f"pod {namespace}/{name} does not exist{close}", reason="PodNotFound"
        ) from error
    return answering.explain(found, placement, world)


def as_object(answer: Answer) -> dict[str, object]:
    """Return the answer for programs."""
    return {
        "pod": answer.pod,
        "state": answer.state,
        "answer": " ".join(answer.sentences),
        "asks": answer.asks,
        "counts": answer.counts,
        "cards": [
            {
                "node": each.card.node,
                "card": each.card.address or each.card.name,
                "uuid": each.card.uuid,
                "product": each.card.product,
                "reason": each.reason,
                "detail": each.detail,
            }
            for each in answer.verdicts
        ],
        "notes": answer.notes,
    }


def as_text(answer: Answer) -> str:
    """Return the answer for people."""
    parts = [" ".join(answer.sentences)]
    if answer.verdicts and answer.state not in _WITHOUT_TABLE:
        counts = [
            (count, reason, MEANINGS[Reason(reason)]) for reason, count in answer.counts.items()
        ]
        counts.append((len(answer.verdicts), "all cards", ""))
        parts.append(
            "\n".join(
                line.removesuffix(" -").rstrip()
                for line in output.table(("CARDS", "REASON", "MEANING"), counts).splitlines()
            )
        )
        rows = [
            (each.card.node, each.card.address or each.card.name, each.card.product,
             each.reason, each.detail)
            for each in answer.verdicts
        ]  # fmt: skip
        parts.append(output.table(("NODE", "CARD", "PRODUCT", "REASON", "WHO OR WHY"), rows))
    parts += [f"note: {note}" for note in answer.notes]
    return "\n\n".join(parts)
