# SPDX-License-Identifier: Apache-2.0
"""Whether a card is one that a class selects, and if not, which requirement it misses.

A GPUClass is compared by its own rules (`api.selectors`), which say what is wanted
and what is there. Another DeviceClass has only CEL: of that the terms that GPU
classes are made of are understood, joined by `&&`; a term that is not understood
counts as met and is named, because a wrong "no" would mislead more.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

from gpudeck.api import labels, quantities, selectors, versions
from gpudeck.api.resource import Device
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.api.v1alpha1.gpuclass import GPUClassSpec
from gpudeck.errors import InvalidError
from gpudeck.explaining import cards, partitioning, plugins
from gpudeck.explaining.asking import Ask, Option
from gpudeck.explaining.cards import Card
from gpudeck.explaining.reasons import Obstacle
from gpudeck.explaining.world import World


@dataclasses.dataclass
class Match:
    """The outcome: what is missed, "" if nothing is."""

    missed: str = ""
    unknown: list[str] = dataclasses.field(default_factory=list)
    """CEL terms that were not understood."""
    devices: list[Device] = dataclasses.field(default_factory=list)
    """DRA devices of the card that match; none where only what gpudeck says of it is known."""
    amounts: dict[str, int] = dataclasses.field(default_factory=dict)
    """What is needed of them."""
    resource: str = ""
    """The name by which gpudeck's device plugin would give something of the card."""
    obstacle: Obstacle | None = None
    """Why the card has no device that matches, although it could have one."""


def card_for(ask: Ask, card: Card, world: World) -> Match:
    """Compare a card with what a pod asks for: the first option that fits, else the first miss."""
    if ask.resource and card.is_plugin_node:
        return _by_plugin(ask.resource, card, world)
    first: Match | None = None
    for option in ask.options:
        found = _option(option, card, world)
        if not found.missed:
            return found
        first = first or found
    return first or Match(missed=f"no GPUClass offers {ask.resource}")


def _by_plugin(resource: str, card: Card, world: World) -> Match:
    if card.is_told:
        return Match(missed=plugins.missed(card, resource), resource=resource)
    offered = cards.plugin_resources(world.nodes[card.node])
    if resource in offered:
        return Match()
    return Match(missed=f"its node's device plugin offers {', '.join(sorted(offered))}")


def _option(option: Option, card: Card, world: World) -> Match:
    if card.source is cards.Source.DEVICE_PLUGIN or (card.is_told and not card.devices):
        return Match(missed="the device plugin hands it out, and classes are for DRA")
    gpu_class = world.gpu_classes.get(option.class_name)
    if gpu_class is not None:
        return _gpu_class(gpu_class.spec, option, card)
    device_class = world.device_classes.get(option.class_name)
    if device_class is None and "deviceclasses" not in world.unreadable:
        return Match(missed=f"class {option.class_name} does not exist")
    terms = (device_class.spec.selectors if device_class and device_class.spec else None) or []
    wanted = (*(each.cel.expression for each in terms if each.cel), *option.selectors)
    return _by_terms(wanted, option, card, card.devices)


def _by_terms(wanted: Iterable[str], option: Option, card: Card, devices: list[Device]) -> Match:
    """Compare CEL with devices of a card; without any, only the driver can be compared."""
    if not devices:
        return _all_terms(wanted, card, None)
    wanted = tuple(wanted)
    found = [(device, _all_terms(wanted, card, device)) for device in devices]
    fitting = [device for device, match in found if not match.missed]
    if not fitting:
        return found[0][1]
    first = next(match for _, match in found if not match.missed)
    return Match(unknown=first.unknown, devices=fitting, amounts=dict(option.amounts))


def _gpu_class(spec: GPUClassSpec, option: Option, card: Card) -> Match:
    """Compare a class with what the card offers, else with what is known of the card."""
    if card.driver != labels.DRIVER:
        return Match(f"its DRA driver must be {labels.DRIVER}, it is {card.driver}")
    try:
        chosen = [
            device
            for device in card.devices
            if selectors.matches(spec, selectors.traits_of_device(device))
        ]
        if chosen:
            return _by_terms(option.selectors, option, card, chosen)
        return _without_device(spec, option, card)
    except InvalidError as error:
        return Match(str(error))


def selects(spec: GPUClassSpec, card: Card) -> bool:
    """Whether a class is for such cards, whatever of this one is offered."""
    try:
        return card.gpu is not None and not selectors.card_mismatches(
            spec, selectors.traits_of_gpu(card.gpu)
        )
    except InvalidError:
        return False


def _without_device(spec: GPUClassSpec, option: Option, card: Card) -> Match:
    """Say what a card without a device for the class misses, or why it offers none."""
    if card.gpu is None:
        if card.device is None:
            return Match(missed="it offers no device of the class")
        return Match(_sentence(selectors.mismatches(spec, selectors.traits_of_device(card.device))))
    traits = selectors.traits_of_gpu(card.gpu)
    missed = selectors.card_mismatches(spec, traits)
    kinds = selectors.kinds(spec)
    if missed:
        return Match(_sentence(missed))
    if kinds == [gpuclass.PARTITION] and (said := partitioning.missed(spec, card.gpu)):
        return Match(said)
    hindrance = partitioning.obstacle(spec, card.gpu, has_parts=bool(card.parts))
    if hindrance is None and gpuclass.WHOLE in kinds:
        return _all_terms(option.selectors, card, card.device)
    return Match(obstacle=hindrance)


def _sentence(missed: Iterable[selectors.Mismatch]) -> str:
    return "; ".join(str(each).replace("the card has ", "it has ") for each in missed)


# CEL

_TEXT = r"""["'](?P<{}>[^"']*)["']"""
_OWNER = r"""device\.{}\[["'](?P<domain>[^"']+)["']\]\.(?P<name>\w+)"""
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, ">=": operator.ge,
    "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_COMPARISON = r"(?P<operator>==|!=|>=|<=|>|<)"
_DRIVER = re.compile(r"device\.driver\s*==\s*" + _TEXT.format("value"))
_HAS = re.compile(_TEXT.format("name") + r"\s+in\s+device\.(?:attributes|capacity)\[[^\]]+\]")
_VALUE = re.compile(
    _OWNER.format("attributes")
    + rf"\s*{_COMPARISON}\s*(?P<value>[\"'][^\"']*[\"']|-?\d+|true|false)"
)
_VERSION = re.compile(
    _OWNER.format("attributes")
    + r"\.compareTo\(semver\("
    + _TEXT.format("value")
    + rf"\)\)\s*{_COMPARISON}\s*0"
)
_QUANTITY = re.compile(
    _OWNER.format("capacity")
    + r"\.compareTo\(quantity\("
    + _TEXT.format("value")
    + rf"\)\)\s*{_COMPARISON}\s*0"
)
_PATTERN = re.compile(
    _OWNER.format("attributes")
    + r"(?P<lower>\.lowerAscii\(\))?\.matches\("
    + _TEXT.format("value")
    + r"\)"
)


def _all_terms(expressions: Iterable[str], card: Card, device: Device | None) -> Match:
    match = Match()
    for expression in expressions:
        for term in split(expression):
            holds = _term(term, card.driver, device)
            if holds is None:
                match.unknown.append(term)
            elif not holds:
                match.missed = f"{term} does not hold for it"
                return match
    return match


def split(expression: str) -> list[str]:
    """Split CEL at `&&` outside brackets and texts; what has `||` outside stays one term."""
    terms, depth, quote, start = [], 0, "", 0
    for position, character in enumerate(expression):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif depth == 0 and expression.startswith("||", position):
            return [expression.strip()]
        elif depth == 0 and expression.startswith("&&", position):
            terms.append(expression[start:position].strip())
            start = position + 2
    return [*terms, expression[start:].strip()]


def _term(term: str, driver: str, device: Device | None) -> bool | None:
    """Return whether a term holds for a device, None if it is not understood."""
    if found := _DRIVER.fullmatch(term):
        return driver == found["value"]
    if device is None:
        return None
    if found := _HAS.fullmatch(term):
        name = found["name"]
        return cards.attribute(device, driver, name) is not None or name in (device.capacity or {})
    for pattern, holds in _TERMS:
        if found := pattern.fullmatch(term):
            return holds(found, driver, device)
    return None


def _value(found: re.Match[str], driver: str, device: Device) -> bool:
    fact, text = _fact(found, driver, device), found["value"]
    wanted: object = text.strip("\"'")
    if text in ("true", "false"):
        wanted = text == "true"
    elif text.lstrip("-").isdigit():
        wanted = int(text)
    return type(fact) is type(wanted) and _OPERATORS[found["operator"]](fact, wanted)


def _version(found: re.Match[str], driver: str, device: Device) -> bool:
    fact = versions.key(str(_fact(found, driver, device) or ""))
    return fact is not None and _OPERATORS[found["operator"]](fact, versions.key(found["value"]))


def _quantity(found: re.Match[str], driver: str, device: Device) -> bool:
    capacity = device.capacity or {}
    value = capacity.get(found["name"]) or capacity.get(f"{found['domain']}/{found['name']}")
    if value is None:
        return False
    bound = quantities.parse(found["value"])
    return _OPERATORS[found["operator"]](quantities.parse(value.value), bound)


def _pattern(found: re.Match[str], driver: str, device: Device) -> bool:
    fact = _fact(found, driver, device)
    if not isinstance(fact, str):
        return False
    fact = fact.lower() if found["lower"] else fact
    return re.search(found["value"].replace("\\\\", "\\"), fact) is not None


def _fact(found: re.Match[str], driver: str, device: Device) -> str | int | bool | None:
    known = cards.attribute(device, driver, f"{found['domain']}/{found['name']}")
    if known is None:
        return None
    values = (known.string, known.version, known.int_, known.bool_)
    return next((value for value in values if value is not None), None)


_TERMS: list[tuple[re.Pattern[str], Callable[[re.Match[str], str, Device], bool]]] = [
    (_VALUE, _value),
    (_VERSION, _version),
    (_QUANTITY, _quantity),
    (_PATTERN, _pattern),
]
