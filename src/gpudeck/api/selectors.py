# SPDX-License-Identifier: Apache-2.0
"""What a GPUClass selects: once as CEL for the scheduler, once as a predicate over devices.

Both come from the same list of rules, so `explain`, the status of a class and the
scheduler agree. Pure. The CEL asks for the driver first and for the presence of
each attribute before its value: a missing key is a run-time error in CEL, and one
error keeps a pod Pending although other devices would do (resource.k8s.io/v1).
A card that lacks a fact does not match a requirement about it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping

from gpudeck.api import attributes, labels, names, quantities, versions
from gpudeck.api.resource import Attribute, Device
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.api.v1alpha1.gpuclass import GPUClassSpec, SizeRange, VersionRange
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.errors import InvalidError

Fact = str | int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traits:
    """What classes look at, from a PhysicalGPU or from a published device; None is unknown."""

    type: str | None = attributes.TYPE_GPU
    vendor: str | None = None
    product_name: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    driver_version: str | None = None
    memory_bytes: int | None = None
    """Of the device itself: of a partition its own."""
    card_memory_bytes: int | None = None
    """On a partition: of the whole card."""
    profile: str | None = None
    sharing_strategy: str | None = None


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """One requirement that a card does not meet."""

    field: str
    wanted: str
    found: str

    def __str__(self) -> str:
        return f"{self.field} must be {self.wanted}, the card has {self.found}"


@dataclasses.dataclass(frozen=True)
class Rule:
    """One requirement in both languages."""

    field: str
    wanted: str
    cel: str
    fact: Callable[[Traits], Fact]
    holds: Callable[[Fact], bool]


TYPES = {
    gpuclass.WHOLE: attributes.TYPE_GPU,
    gpuclass.PARTITION: attributes.TYPE_MIG,
    gpuclass.SHARE: attributes.TYPE_SHARE,
}
"""The attribute `type` of the devices of each kind."""


def kinds(spec: GPUClassSpec) -> list[str]:
    """Return the kinds of devices of a class, in the order of `gpuclass.KINDS`.

    Raises InvalidError for a kind that was written under another schema.
    """
    given = spec.devices or [gpuclass.WHOLE]
    unknown = sorted(set(given) - set(gpuclass.KINDS))
    if unknown:
        allowed = ", ".join(gpuclass.KINDS)
        raise InvalidError(
            f"spec.devices: {', '.join(unknown)} is not known; allowed: {allowed}",
            reason="UnknownDeviceKind",
            field="spec.devices",
            allowed=allowed,
        )
    return [kind for kind in gpuclass.KINDS if kind in given]


def kind_rules(spec: GPUClassSpec, kind: str) -> list[Rule]:
    """Return what the class requires of its devices of one kind only. Raises InvalidError."""
    found = [_equals("spec.devices", attributes.TYPE, TYPES[kind], _type)]
    if kind == gpuclass.PARTITION and spec.partition is not None:
        if spec.partition.profiles:
            found.append(_profile_rule(spec.partition.profiles, "spec.partition.profiles"))
        found += _memory_rules(spec.partition.memory, "spec.partition.memory", _OWN)
    if kind == gpuclass.SHARE:
        strategy = (spec.share.strategy if spec.share else None) or gpuclass.TIME_SLICING
        found.append(
            _equals("spec.share.strategy", attributes.SHARING_STRATEGY, strategy, _strategy)
        )
    return found


def common_rules(spec: GPUClassSpec) -> list[Rule]:
    """Return what the class requires of the card, whatever part of it is handed out.

    Raises InvalidError that names the field. The API server checks most of it when the
    class is written; a class that was written under another schema is checked here again.
    """
    found = []
    if spec.vendor:
        found.append(_equals("spec.vendor", attributes.VENDOR, spec.vendor, _vendor))
    return found + _requirement_rules(spec)


def _requirement_rules(spec: GPUClassSpec) -> list[Rule]:
    wanted, prefix = spec.requirements, "spec.requirements."
    if wanted is None:
        return []
    found = _memory_rules(wanted.memory, prefix + "memory", _card_memory(spec))
    found += _version_rules(
        wanted.compute_capability,
        prefix + "computeCapability",
        attributes.COMPUTE_CAPABILITY,
        lambda traits: traits.compute_capability,
    )
    found += _version_rules(
        wanted.driver_version,
        prefix + "driverVersion",
        attributes.DRIVER_VERSION,
        lambda traits: traits.driver_version,
    )
    if wanted.architectures:
        found.append(_architecture_rule(wanted.architectures, prefix + "architectures"))
    if wanted.products:
        found.append(_product_rule(wanted.products, prefix + "products"))
    return found


def expression(spec: GPUClassSpec) -> str:
    """Return the one CEL expression of the DeviceClass. Raises InvalidError as the rules do."""
    driver = f"device.driver == {_text(labels.DRIVER)}"
    ways = [[rule.cel for rule in kind_rules(spec, kind)] for kind in kinds(spec)]
    if len(ways) == 1:
        chosen = ways[0]
    else:
        either = "\n|| ".join(f"({' && '.join(way)})" for way in ways)
        chosen = [f"({either})"]
    return "\n&& ".join([driver, *chosen, *(rule.cel for rule in common_rules(spec))])


def mismatches(spec: GPUClassSpec, traits: Traits) -> list[Mismatch]:
    """Return every requirement that the device does not meet; none means the class selects it."""
    chosen = kinds(spec)
    kind = next((each for each in chosen if TYPES[each] == traits.type), None)
    if kind is not None:
        return _missed([*kind_rules(spec, kind), *common_rules(spec)], traits)
    wanted = " or ".join(TYPES[each] for each in chosen)
    other = Mismatch("spec.devices", wanted, traits.type or _NO_FACT)
    return [other, *_missed(common_rules(spec), traits)]


def card_mismatches(spec: GPUClassSpec, traits: Traits) -> list[Mismatch]:
    """Return the requirements that a card does not meet, whatever part of it is handed out."""
    return _missed(common_rules(spec), traits)


_NO_FACT = "no such fact"


def _missed(wanted: list[Rule], traits: Traits) -> list[Mismatch]:
    found = []
    for rule in wanted:
        fact = rule.fact(traits)
        if not rule.holds(fact):
            shown = _NO_FACT if fact is None else str(fact)
            found.append(Mismatch(rule.field, rule.wanted, shown))
    return found


def matches(spec: GPUClassSpec, traits: Traits) -> bool:
    """Say whether the class selects a device with these traits."""
    return not mismatches(spec, traits)


def takes_profile(spec: GPUClassSpec, name: str, memory_bytes: int) -> bool:
    """Say whether partitions of a profile are of the class, on cards that it selects.

    Raises InvalidError as the rules do.
    """
    if gpuclass.PARTITION not in kinds(spec):
        return False
    traits = Traits(type=attributes.TYPE_MIG, profile=name, memory_bytes=memory_bytes)
    return not _missed(kind_rules(spec, gpuclass.PARTITION), traits)


def traits_of_gpu(gpu: PhysicalGPU) -> Traits:
    """Return the traits of a card as its PhysicalGPU tells them."""
    status = gpu.status
    capabilities = status.capabilities if status else None
    vendor = (gpu.metadata.labels or {}).get(labels.VENDOR)
    current = status.current_state if status else None
    driver_version = current.driver_version if current else None
    if capabilities is None:
        return Traits(vendor=vendor, driver_version=driver_version)
    mebibytes = capabilities.memory_mib
    return Traits(
        vendor=vendor or (capabilities.vendor or "").lower() or None,
        product_name=capabilities.product_name,
        architecture=capabilities.architecture,
        compute_capability=capabilities.compute_capability,
        driver_version=driver_version,
        memory_bytes=None if mebibytes is None else mebibytes * quantities.MEBIBYTE,
    )


def traits_of_device(device: Device) -> Traits:
    """Return the traits of a device of ours as its ResourceSlice tells them."""
    known = device.attributes or {}
    capacity = (device.capacity or {}).get(attributes.MEMORY)
    return Traits(
        type=_string(known, attributes.TYPE),
        vendor=_string(known, attributes.VENDOR),
        product_name=_string(known, attributes.PRODUCT_NAME),
        architecture=_string(known, attributes.ARCHITECTURE),
        compute_capability=_version(known, attributes.COMPUTE_CAPABILITY),
        driver_version=_version(known, attributes.DRIVER_VERSION),
        memory_bytes=None if capacity is None else quantities.parse(capacity.value),
        card_memory_bytes=_integer(known, attributes.CARD_MEMORY),
        profile=_string(known, attributes.PROFILE),
        sharing_strategy=_string(known, attributes.SHARING_STRATEGY),
    )


def _string(known: Mapping[str, Attribute], name: str) -> str | None:
    attribute = known.get(name) or known.get(f"{attributes.DOMAIN}/{name}")
    return attribute.string if attribute else None


def _integer(known: Mapping[str, Attribute], name: str) -> int | None:
    attribute = known.get(name) or known.get(f"{attributes.DOMAIN}/{name}")
    return attribute.int_ if attribute else None


def _version(known: Mapping[str, Attribute], name: str) -> str | None:
    attribute = known.get(name) or known.get(f"{attributes.DOMAIN}/{name}")
    return attribute.version if attribute else None


def _type(traits: Traits) -> Fact:
    return traits.type


def _vendor(traits: Traits) -> Fact:
    return traits.vendor


def _strategy(traits: Traits) -> Fact:
    return traits.sharing_strategy


def _equals(field: str, attribute: str, value: str, fact: Callable[[Traits], Fact]) -> Rule:
    cel = _guarded("attributes", attribute, f"{{}} == {_text(value)}")
    return Rule(field, value, cel, fact, lambda found: found == value)


@dataclasses.dataclass(frozen=True)
class _Memory:
    """Where memory is found: as CEL with {operator} and {bound}, and in the traits."""

    cel: str
    fact: Callable[[Traits], Fact]


def _memory_rules(bounds: SizeRange | None, field: str, where: _Memory) -> list[Rule]:
    found: list[Rule] = []
    if bounds is None:
        return found
    if bounds.min is not None:
        least = quantities.parse(bounds.min, field + ".min")
        cel = where.cel.format(operator=">=", bound=least)
        wanted = f"at least {bounds.min} ({least} bytes)"
        found.append(Rule(field + ".min", wanted, cel, where.fact, _at_least(least)))
    if bounds.max is not None:
        most = quantities.parse(bounds.max, field + ".max")
        cel = where.cel.format(operator="<=", bound=most)
        wanted = f"at most {bounds.max} ({most} bytes)"
        found.append(Rule(field + ".max", wanted, cel, where.fact, _at_most(most)))
    return found


def _at_least(bound: int) -> Callable[[Fact], bool]:
    return lambda found: isinstance(found, int) and found >= bound


def _at_most(bound: int) -> Callable[[Fact], bool]:
    return lambda found: isinstance(found, int) and found <= bound


def _card_memory(spec: GPUClassSpec) -> _Memory:
    """Where a card's memory is found on the kinds of devices that the class has."""
    chosen = kinds(spec)
    if gpuclass.PARTITION not in chosen:
        return _OWN
    if chosen == [gpuclass.PARTITION]:
        return _PARENT
    is_part = _guarded("attributes", attributes.TYPE, f"{{}} == {_text(attributes.TYPE_MIG)}")
    return _Memory(f"({is_part} ? {_PARENT.cel} : {_OWN.cel})", _memory_of_card)


def _memory_of_card(traits: Traits) -> Fact:
    return traits.card_memory_bytes if traits.type == attributes.TYPE_MIG else traits.memory_bytes


def _version_rules(
    bounds: VersionRange | None, field: str, attribute: str, fact: Callable[[Traits], Fact]
) -> list[Rule]:
    found: list[Rule] = []
    if bounds is None:
        return found
    lower = versions.lower_bound(bounds.min, field + ".min") if bounds.min is not None else None
    upper = versions.upper_bound(bounds.max, field + ".max") if bounds.max is not None else None
    if lower is not None and upper is not None and lower >= upper:
        raise InvalidError(
            f"{field}.min: {bounds.min!r} is above {field}.max {bounds.max!r}",
            reason="InvalidRange",
            field=field + ".min",
            allowed=f"at most {bounds.max}",
        )
    if lower is not None:
        test = f"{{}}.compareTo(semver({_text(versions.render(lower))})) >= 0"
        cel = _guarded("attributes", attribute, test)
        found.append(Rule(field + ".min", f"at least {bounds.min}", cel, fact, _not_below(lower)))
    if upper is not None:
        test = f"{{}}.compareTo(semver({_text(versions.render(upper))})) < 0"
        cel = _guarded("attributes", attribute, test)
        found.append(Rule(field + ".max", f"at most {bounds.max}", cel, fact, _below(upper)))
    return found


def _not_below(bound: versions.Version) -> Callable[[Fact], bool]:
    def holds(found: Fact) -> bool:
        key = versions.key(str(found)) if found is not None else None
        return key is not None and key >= bound

    return holds


def _below(bound: versions.Version) -> Callable[[Fact], bool]:
    def holds(found: Fact) -> bool:
        key = versions.key(str(found)) if found is not None else None
        return key is not None and key < bound

    return holds


def _architecture_rule(wanted: list[str], field: str) -> Rule:
    folded = sorted({each.lower() for each in wanted})
    test = f"{{}}.lowerAscii() in [{', '.join(_text(each) for each in folded)}]"

    def holds(found: Fact) -> bool:
        return isinstance(found, str) and found.lower() in folded

    cel = _guarded("attributes", attributes.ARCHITECTURE, test)
    return Rule(field, _any_of(wanted), cel, lambda traits: traits.architecture, holds)


def _product_rule(wanted: list[str], field: str) -> Rule:
    pattern = "(?is)^(?:" + "|".join(_regular(each) for each in wanted) + ")$"
    globs = [each.lower() for each in wanted]

    def holds(found: Fact) -> bool:
        if not isinstance(found, str):
            return False
        name = names.attribute_text(found).lower()
        return any(_fits(glob, name) for glob in globs)

    test = "{}.matches(" + _text(pattern) + ")"
    cel = _guarded("attributes", attributes.PRODUCT_NAME, test)
    return Rule(field, _any_of(wanted), cel, lambda traits: traits.product_name, holds)


def _fits(glob: str, name: str) -> bool:
    """Whether a glob covers the whole name, in time that grows with their product.

    Python's regular expressions would need exponential time for a glob of many stars; the
    scheduler's RE2 does not. Only the last star seen has ever to be tried again.
    """
    at = place = 0
    star, taken = -1, 0
    while place < len(name):
        if at < len(glob) and glob[at] == "*":
            star, taken = at, place
            at += 1
        elif at < len(glob) and glob[at] in ("?", name[place]):
            at, place = at + 1, place + 1
        elif star >= 0:
            taken += 1
            at, place = star + 1, taken
        else:
            return False
    return not glob[at:].strip("*")


def _regular(glob: str) -> str:
    """Return a glob as a regular expression of RE2, which the scheduler's CEL uses."""
    return "".join(_WILDCARDS.get(each) or _literal(each) for each in glob)


_WILDCARDS = {"*": ".*", "?": "."}


def _literal(character: str) -> str:
    if character.isascii() and not character.isalnum() and character != " ":
        return "\\" + character
    return character


def _profile_rule(wanted: list[str], field: str) -> Rule:
    known = sorted(set(wanted))
    test = f"{{}} in [{', '.join(_text(each) for each in known)}]"
    cel = _guarded("attributes", attributes.PROFILE, test)
    return Rule(
        field, _any_of(wanted), cel, lambda traits: traits.profile, lambda got: got in known
    )


def _any_of(wanted: list[str]) -> str:
    return wanted[0] if len(wanted) == 1 else "one of " + ", ".join(wanted)


def _guarded(collection: str, name: str, test: str) -> str:
    """Return CEL that holds if the device has the value and `test` (with {} for it) holds."""
    owner = f"device.{collection}[{_text(attributes.DOMAIN)}]"
    return f"{_text(name)} in {owner} && " + test.replace("{}", f"{owner}.{name}")


def _text(value: str) -> str:
    """Return a CEL string literal; CEL reads JSON's escapes except surrogate pairs."""
    return json.dumps(value, ensure_ascii=False)


_OWN = _Memory(
    _guarded("capacity", attributes.MEMORY, '{}.compareTo(quantity("{bound}")) {operator} 0'),
    lambda traits: traits.memory_bytes,
)
_PARENT = _Memory(
    _guarded("attributes", attributes.CARD_MEMORY, "{} {operator} {bound}"), _memory_of_card
)
