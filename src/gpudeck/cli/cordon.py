# SPDX-License-Identifier: Apache-2.0
"""`gpudeck cordon CARD` and `gpudeck uncordon CARD`: take a card out of use, and give it back.

A card is several DRA devices (the whole card, its shares, each place where a partition
may lie) and a DeviceTaintRule names one, so there is one rule for each: also for devices
that are published only later. The API server, the scheduler and Kubernetes' eviction do
the rest; no process of gpudeck has to run. The rules of a card are found by its label.
"""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any

import click

from gpudeck import errors
from gpudeck.api import labels, names
from gpudeck.api.meta import Meta
from gpudeck.api.resource import DeviceTaintRule
from gpudeck.api.resources import DEVICE_TAINT_RULES, Resource
from gpudeck.cli import output, reading
from gpudeck.devices.identities import PciAddress
from gpudeck.explaining import cards
from gpudeck.explaining.cards import Card
from gpudeck.explaining.world import World
from gpudeck.kube import responses
from gpudeck.kube.client import Client

REASON_LENGTH = 1024
_LISTED = 10


@click.command()
@click.argument("card")
@click.option("--reason", default="", help="Why, for whoever looks at the card next.")
@click.option("--evict", is_flag=True, help="Also end the pods that hold the card.")
@reading.connecting
def cordon(card: str, *, reason: str, evict: bool, server: reading.Server, as_json: bool) -> None:
    """Keep new pods off CARD: a PhysicalGPU's name, a UUID, or NODE/INDEX.

    All its partitions and shares are kept back with it. Pods that hold it go on, unless
    --evict is given. The same command with other options changes what was said before.
    """
    if len(reason) > REASON_LENGTH:
        raise errors.InvalidError(
            f"--reason: {len(reason)} characters; allowed: at most {REASON_LENGTH}",
            field="--reason",
            allowed=f"at most {REASON_LENGTH} characters",
        )

    async def work(client: Client) -> Outcome:
        world, served = await reading.world(client), await rules(client)
        return await _cordon(client, served, find(world, card), reason=reason, evict=evict)

    _show(reading.run(server, work), as_json=as_json)


@click.command()
@click.argument("card")
@reading.connecting
def uncordon(card: str, *, server: reading.Server, as_json: bool) -> None:
    """Let new pods have CARD again: a PhysicalGPU's name, a UUID, or NODE/INDEX."""

    async def work(client: Client) -> Outcome:
        world, served = await reading.world(client), await rules(client)
        return await _uncordon(client, served, world, card)

    _show(reading.run(server, work), as_json=as_json)


@dataclasses.dataclass(frozen=True)
class Served:
    """The kind of rule that the server has, and all rules that there are."""

    resource: Resource
    found: dict[str, DeviceTaintRule]

    def of(self, name: str) -> list[str]:
        """Return the names of the rules that cordon a PhysicalGPU."""
        wanted = names.node_label(name)
        return sorted(
            rule
            for rule, each in self.found.items()
            if (each.metadata.labels or {}).get(labels.CARD) == wanted
        )


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What is so now, for people and as JSON."""

    card: str
    cordoned: bool
    rules: list[str]
    message: str
    notes: list[str]


def _show(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        output.show_json(dataclasses.asdict(outcome))
        return
    output.show(outcome.message)
    for note in outcome.notes:
        click.echo(f"note: {note}", err=True)


async def rules(client: Client) -> Served:
    """Return what the server has. UnsupportedError if it knows no DeviceTaintRule."""
    for resource in DEVICE_TAINT_RULES:
        try:
            listed = await client.list(resource, DeviceTaintRule)
        except errors.NotFoundError as error:
            if error.reason != responses.NOT_SERVED:
                raise
        else:
            return Served(resource, {each.metadata.name: each for each in listed.items})
    raise errors.UnsupportedError(
        "this API server has no DeviceTaintRule (resource.k8s.io/v1, Kubernetes 1.37; on 1.36 "
        "v1beta2 with the feature gate DRADeviceTaintRules), so no card can be cordoned; "
        "`kubectl cordon` keeps pods off the whole node",
        reason="NoDeviceTaintRules",
    )


async def _cordon(
    client: Client, served: Served, card: Card, *, reason: str, evict: bool
) -> Outcome:
    if card.is_told and not card.devices:
        raise errors.InvalidError(
            f"CARD: {card.name} is handed out by the device plugin of {card.node}, and a "
            "DeviceTaintRule keeps off claims alone; allowed: cards of nodes in DRA mode; "
            "`kubectl cordon` keeps pods off the whole node",
            reason="CardOfDevicePlugin",
            field="CARD",
            allowed="cards of nodes in DRA mode",
        )
    made = []
    for device in devices(card):
        body = rule(card, device, reason=reason, evict=evict)
        await client.apply(served.resource, body, Meta, manager=labels.MANAGER_CLI)
        made.append(body["metadata"]["name"])
    holders = ", ".join(holder.text for holder in card.holders)
    fate = "will be ended" if evict else "go on"
    message = f"{card.name} is cordoned: new pods avoid it and its parts" + (
        f"; those that hold it {fate}: {holders}" if holders else ""
    )
    notes = []
    if card.gpu is None or card.gpu.status is None or card.gpu.status.capabilities is None:
        notes.append(
            "Nothing is known yet of the partitions that the card can be cut into; "
            "repeat the command when the card's DriverReady is True."
        )
    return Outcome(card.name, True, sorted({*made, *served.of(card.name)}), message, notes)


async def _uncordon(client: Client, served: Served, world: World, text: str) -> Outcome:
    # The rules of a card whose PhysicalGPU is gone go by its name.
    card = None if served.of(text) and text not in world.gpus else find(world, text)
    name = card.name if card else text
    mine = served.of(name)
    for each in mine:
        try:
            await client.delete(served.resource, each)
        except errors.NotFoundError:
            continue
    said = f"{name} is not cordoned any more" if mine else f"{name} was not cordoned"
    others = foreign(served, card, mine) if card else []
    notes = [f"DeviceTaintRule {each}, which is not gpudeck's, still taints it." for each in others]
    return Outcome(name, False, [], said, notes)


def foreign(served: Served, card: Card, mine: list[str]) -> list[str]:
    """Return the rules of others that taint a card or a part of it."""
    own = set(devices(card))
    return sorted(
        name
        for name, each in served.found.items()
        if name not in mine
        and each.spec.taint.effect != "None"
        and (chosen := each.spec.device_selector) is not None
        and chosen.driver in (None, labels.DRIVER)
        and chosen.pool in (None, names.pool_name(card.node))
        and (chosen.device is None or chosen.device in own)
    )


def rule(card: Card, device: str, *, reason: str, evict: bool) -> dict[str, Any]:
    """Return the DeviceTaintRule of one device."""
    metadata: dict[str, Any] = {
        "name": names.taint_rule_name(card.node, device),
        "labels": {
            labels.MANAGED_BY: labels.MANAGED_BY_GPUDECK,
            labels.CARD: names.node_label(card.name),
        },
    }
    if reason:
        metadata["annotations"] = {labels.REASON: reason}
    return {
        "metadata": metadata,
        "spec": {
            "deviceSelector": {
                "driver": labels.DRIVER,
                "pool": names.pool_name(card.node),
                "device": device,
            },
            "taint": {"key": labels.CORDONED, "effect": "NoExecute" if evict else "NoSchedule"},
        },
    }


def devices(card: Card) -> list[str]:
    """Return every device that the card is or may become, those that are published first."""
    published = [each.name for each in (card.device, *card.parts) if each is not None]
    address = PciAddress.parse(card.address)
    possible = [
        names.gpu_device_name(address),
        names.share_device_name(address),
        names.share_device_name(address, mps=True),
    ]
    status = card.gpu.status if card.gpu else None
    support = status.capabilities.partition_support if status and status.capabilities else None
    for profile in (support.profiles if support else None) or ():
        for placement in profile.placements or ():
            possible.append(
                names.mig_device_name(address, profile.name, profile.profile_id, placement.start)
            )
    return list(dict.fromkeys([*published, *sorted(card.held_devices), *possible]))


def find(world: World, text: str) -> Card:
    """Return the card that `text` names. NotFoundError or InvalidError says what would do."""
    every = cards.all_of(world)
    ours = [card for card in every if card.gpu is not None and card.address]
    node, slash, place = text.partition("/")
    if slash:
        return _on_node([card for card in ours if card.node == node], node, place)
    wanted = text.lower()
    for card in ours:
        if text == card.name or wanted == card.uuid.lower():
            return card
        if wanted in _partitions(card):
            raise errors.InvalidError(
                f"CARD: {text!r} is a partition of {card.name}; a card is cordoned as a whole",
                field="CARD",
                allowed=card.name,
            )
    if any(text in (card.name, card.uuid) for card in every):
        raise errors.InvalidError(
            f"CARD: {text!r} is not handed out by gpudeck; allowed: cards with a PhysicalGPU",
            field="CARD",
            allowed="cards with a PhysicalGPU",
        )
    near = difflib.get_close_matches(text, [card.name for card in ours], n=1)
    hint = f"did you mean {near[0]}?" if near else "`gpudeck get cards` lists them"
    raise errors.NotFoundError(f"there is no card {text!r}; {hint}", reason="NoSuchCard")


def _on_node(mine: list[Card], node: str, place: str) -> Card:
    """Return a card of one node by its index in the order of the bus, or by its address."""
    if not mine:
        raise errors.NotFoundError(f"node {node!r} has no card of gpudeck", reason="NoSuchCard")
    mine = sorted(mine, key=lambda card: card.address)
    for index, card in enumerate(mine):
        if place.lower() in (str(index), card.address):
            return card
    shown = ", ".join(card.address for card in mine[:_LISTED])
    raise errors.NotFoundError(
        f"CARD: {node} has no card {place!r}; allowed: 0 to {len(mine) - 1}, "
        f"or an address: {shown}",
        reason="NoSuchCard",
    )


def _partitions(card: Card) -> set[str]:
    status = card.gpu.status if card.gpu else None
    state = status.current_state.partitioning if status and status.current_state else None
    return {each.uuid.lower() for each in (state.partitions if state else None) or ()}
