# SPDX-License-Identifier: Apache-2.0
"""`gpudeck get [nodes|cards|classes|claims]`: what there is, and who holds what.

Read-only. Works on any cluster whose cards gpudeck, NVIDIA's DRA driver or its
device plugin tells of; a card that nobody has described yet is shown as it is.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import click

from gpudeck import errors
from gpudeck.api import conditions, labels
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.cli import output, reading
from gpudeck.explaining import asking, cards, judging, leaving, matching, modes, plugins
from gpudeck.explaining.cards import Card
from gpudeck.explaining.world import World

KINDS = ("nodes", "cards", "classes", "claims")
Rows = list[dict[str, Any]]


@click.command()
@click.argument("kind", required=False, type=click.Choice(KINDS))
@reading.connecting
def get(kind: str | None, server: reading.Server, as_json: bool) -> None:
    """Show nodes, cards, classes and who holds what; without a KIND all of it."""
    world = reading.run(server, reading.world)
    found = cards.all_of(world)
    kinds = [kind] if kind else list(KINDS)
    rows = {each: _ROWS[each](world, found) for each in kinds}
    notes = [
        f"You may not read {each}; what it would tell is left out." for each in world.unreadable
    ]
    notes += _of_classes(rows.get("classes", []))
    if as_json:
        output.show_json({**rows, "notes": notes} if notes else rows)
        return
    for position, each in enumerate(kinds):
        if position:
            output.show()
        _show(each, rows[each], named=kind is None)
    for note in notes:
        click.echo(f"note: {note}", err=True)


def _of_classes(rows: Rows) -> list[str]:
    notes = [
        f"GPUClass {each['class']} is not ready: {each['message']}"
        for each in rows
        if each["ready"] == conditions.FALSE
    ]
    if by_plugin := [f"{each['byPlugin']} of {each['class']}" for each in rows if each["byPlugin"]]:
        notes.append(
            "FREE and HELD of classes leave out cards of nodes in device plugin mode "
            f"({errors.listed(by_plugin)}); `gpudeck get nodes` counts what is free of those."
        )
    return notes


def _show(kind: str, rows: Rows, *, named: bool) -> None:
    if not rows:
        output.show(f"No {kind}.")
        return
    if named:
        output.show(f"{kind.capitalize()}")
    columns = {
        head: field
        for head, field in _COLUMNS[kind].items()
        if head != _BY_PLUGIN or any(row[field] for row in rows)
    }
    lines = [[_flat(row[field]) for field in columns.values()] for row in rows]
    output.show(output.table(list(columns), lines))


def _flat(value: Any) -> Any:
    return ", ".join(map(_text, value)) if isinstance(value, list) else value


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['free']}/{value['devices']} {value['resource']}"
    return str(value)


def nodes(world: World, found: list[Card]) -> Rows:
    """Return the nodes that have cards, with counts."""
    by_node: dict[str, list[Card]] = collections.defaultdict(list)
    for card in found:
        by_node[card.node].append(card)
    return [
        {
            "node": name,
            "ready": world.is_ready(name),
            "status": _status(world, name),
            "products": sorted({card.product for card in held if card.product}),
            "cards": len(held),
            "free": sum(_state(card, world) == "Free" for card in held),
            "held": sum(bool(card.holders) for card in held),
            "mode": modes.of(world.nodes.get(name)),
            "toldBy": _told_by(held),
            "offered": _offered(held),
        }
        for name, held in sorted(by_node.items())
    ]


def _status(world: World, name: str) -> str:
    """Return what `kubectl get nodes` says."""
    node = world.nodes.get(name)
    ready = "Ready" if world.is_ready(name) else "NotReady"
    is_cordoned = node is not None and node.spec is not None and node.spec.unschedulable
    return f"{ready},SchedulingDisabled" if is_cordoned else ready


def _told_by(held: list[Card]) -> list[str]:
    told = {str(card.source) for card in held}
    if any(card.is_plugin_node for card in held):
        told.add(str(cards.Source.DEVICE_PLUGIN))
    return sorted(told)


def _offered(held: list[Card]) -> Rows:
    """What of a node's cards its device plugin offers, and how much of it is free."""
    return [
        {
            "resource": resource,
            "devices": (devices := sum(card.offers.get(resource, 0) for card in held)),
            "free": max(0, devices - sum(card.given.get(resource, 0) for card in held)),
        }
        for resource in sorted({each for card in held for each in card.offers})
    ]


def cards_(world: World, found: list[Card]) -> Rows:
    """Return every card with its state and its holders."""
    return [
        {
            "node": card.node,
            "card": card.address or card.name,
            "name": card.name,
            "product": card.product,
            "memoryMiB": card.memory_mib,
            "uuid": card.uuid,
            "state": _state(card, world),
            "offeredAs": sorted(card.offers),
            "heldBy": [holder.label for holder in card.holders],
            "exact": all(holder.is_exact for holder in card.holders),
        }
        for card in found
    ]


def _state(card: Card, world: World) -> str:
    """Return the state in one word: the phase where gpudeck tells it, else Held or Free.

    A card that is cordoned is said to be so whether it is held or not: who holds it stands
    beside it.
    """
    status = card.gpu.status if card.gpu else None
    phase = str(status.phase) if status and status.phase else ""
    whole = {each.name for each in (card.device, *card.parts) if each is not None}
    if phase in ("", "Ready", "InUse") and judging.cordoning(world, card, whole):
        return "Cordoned"
    if card.holders:
        if phase not in ("", "Ready", "InUse"):
            return phase
        is_left = any(plugins.free(card, each) for each in card.offers) or leaving.free(
            card, card.devices, {}
        )
        return "Partial" if is_left else "Held"
    if phase in ("Ready", "InUse"):
        return "NotPublished" if cards.is_in_no_slice(card, world) else "Free"
    if card.gpu is not None:
        return phase or "Discovered"
    return "Free" if card.is_offered else "NotReady"


def classes(world: World, found: list[Card]) -> Rows:
    """Return the GPUClasses, and the other DeviceClasses that claims may name."""
    rows = []
    for name, gpu_class in sorted(world.gpu_classes.items()):
        status = gpu_class.status or gpuclass.GPUClassStatus()
        ready = conditions.find(status.conditions, conditions.READY)
        rows.append(
            {
                "class": name,
                "kind": "GPUClass",
                "ready": ready.status if ready else "Unknown",
                "resource": asking.served_name(gpu_class),
                "cards": status.matching.gpus if status.matching else None,
                "free": status.free,
                "held": status.allocated,
                "byPlugin": sum(
                    card.is_plugin_node and matching.selects(gpu_class.spec, card) for card in found
                ),
                "message": status.message or (ready.message if ready else ""),
            }
        )
    for name, device_class in sorted(world.device_classes.items()):
        if name not in world.gpu_classes:
            spec = device_class.spec
            resource = (spec.extended_resource_name if spec else None) or ""
            rows.append(
                {"class": name, "kind": "DeviceClass", "ready": "True", "resource": resource,
                 "cards": None, "free": None, "held": None, "byPlugin": 0, "message": ""}
            )  # fmt: skip
    return rows


def claims(world: World, found: list[Card]) -> Rows:
    """Return the claims that hold cards or wait for them."""
    held: dict[str, list[Card]] = collections.defaultdict(list)
    for card in found:
        for holder in card.holders:
            if holder.claim:
                held[f"{holder.namespace}/{holder.claim}"].append(card)
    rows = []
    for key, claim in sorted(world.claims.items()):
        requests = (
            claim.spec.devices.requests if claim.spec and claim.spec.devices else None
        ) or ()
        asked = [
            each.device_class_name
            for request in requests
            for each in [
                *([request.exactly] if request.exactly else []),
                *(request.first_available or ()),
            ]
        ]
        mine = held.get(key, [])
        if not mine and not _is_about_cards(asked, world):
            continue
        reserved = (claim.status.reserved_for if claim.status else None) or []
        rows.append(
            {
                "claim": key,
                "classes": asked,
                "cards": [card.uuid or card.name for card in mine],
                "pods": [f"{claim.metadata.namespace}/{each.name}" for each in reserved],
                "state": "Allocated" if claim.status and claim.status.allocation else "Waiting",
            }
        )
    return rows


def _is_about_cards(asked: list[str], world: World) -> bool:
    """Whether any of the classes is one of gpudeck's, or speaks of a GPU driver."""
    for name in asked:
        device_class = world.device_classes.get(name)
        selectors = (
            device_class.spec.selectors if device_class and device_class.spec else None
        ) or []
        text = " ".join(each.cel.expression for each in selectors if each.cel)
        if name in world.gpu_classes or any(driver in text for driver in cards.DRIVERS):
            return True
    return labels.DRIVER in asked


_ROWS: dict[str, Callable[[World, list[Card]], Rows]] = {
    "nodes": nodes,
    "cards": cards_,
    "classes": classes,
    "claims": claims,
}
_BY_PLUGIN = "FREE DEVICES"
"""A column that is shown where device plugins tell what they offer."""
_COLUMNS = {
    "nodes": {
        "NODE": "node", "STATUS": "status", "CARDS": "cards", "FREE": "free", "HELD": "held",
        _BY_PLUGIN: "offered", "MODE": "mode", "TOLD BY": "toldBy", "PRODUCTS": "products",
    },
    "cards": {
        "NODE": "node", "CARD": "card", "PRODUCT": "product", "MIB": "memoryMiB",
        "STATE": "state", "HELD BY": "heldBy", "UUID": "uuid",
    },
    "classes": {
        "CLASS": "class", "KIND": "kind", "READY": "ready", "RESOURCE": "resource",
        "CARDS": "cards", "FREE": "free", "HELD": "held",
    },
    "claims": {
        "CLAIM": "claim", "STATE": "state", "CLASSES": "classes", "PODS": "pods",
        "CARDS": "cards",
    },
}  # fmt: skip
