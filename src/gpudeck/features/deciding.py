# SPDX-License-Identifier: Apache-2.0
"""What a Node should have, from its NodeFeatures and all rules. Pure; the master calls it.

NodeFeatures of the master's own namespace come first, then the others by name; a later one
overrides. Rules are used in the order of the names of their objects. What may not be written,
or makes no sense, is left out and reported; all else goes on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from gpudeck.api.core import Taint
from gpudeck.api.nodefeatures import NodeFeature, NodeFeatureGroupSpec, NodeFeatureRule
from gpudeck.errors import InvalidError
from gpudeck.features import grouping, labelling, packing, permitting
from gpudeck.features.known import Known, gathered
from gpudeck.features.packing import PackedFeature
from gpudeck.features.permitting import Policy
from gpudeck.features.rules import checking, evaluating
from gpudeck.features.rules.evaluating import Named, Refusal

N = TypeVar("N", NodeFeature, PackedFeature)
MOST_FEATURES = 100
"""NodeFeatures of one node that count: whoever may write some could else stop the work on it."""
FEATURES_BYTES = 8 << 20
FOREIGN_BYTES = 32 * 1024
"""Names and values of labels that NodeFeatures of other namespaces give a node: what stands on a
Node is limited (256 KiB of annotations, one of which lists the labels), and a Node that is full
keeps all labels as they are."""
MOST_SAID = 20
"""Refusals that are told of one node or rule at a time."""


class Wanted(msgspec.Struct):
    """What features and rules give a node, all of it permitted."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    taints: list[Taint] = msgspec.field(default_factory=list)
    extended_resources: dict[str, str] = msgspec.field(default_factory=dict)
    refused: list[Refusal] = msgspec.field(default_factory=list)


def ordered(features: Iterable[N], own_namespace: str) -> list[N]:
    """NodeFeatures in the order in which they count."""
    return sorted(
        features,
        key=lambda each: (
            each.metadata.namespace != own_namespace,
            each.metadata.name,
            each.metadata.namespace or "",
        ),
    )


def named(rules: Iterable[NodeFeatureRule]) -> list[Named]:
    """All rules in the order in which they are used."""
    return [
        Named(each.metadata.name, f"spec.rules[{index}]", rule)
        for each in sorted(rules, key=lambda each: each.metadata.name)
        for index, rule in enumerate(each.spec.rules)
    ]


def decide(
    held: Iterable[PackedFeature],
    rules: Iterable[Named],
    *,
    own_namespace: str,
    policy: Policy,
    groups: Mapping[str, NodeFeatureGroupSpec],
) -> tuple[Wanted, dict[str, grouping.Answer]]:
    """What a node should have, and whether it belongs to groups; takes a while if it has much."""
    counted, refused = counting(held, own_namespace)
    features = [packing.unpack(each) for each in counted]
    found = known(features)
    answers = grouping.ask(groups, found)
    result = wanted(features, rules, own_namespace, policy, known=found)
    result.refused = _some([*refused, *result.refused])
    return result, answers


def ask(
    held: Iterable[PackedFeature], *, own_namespace: str, groups: Mapping[str, NodeFeatureGroupSpec]
) -> dict[str, grouping.Answer]:
    """Whether a node belongs to groups."""
    counted, _ = counting(held, own_namespace)
    return grouping.ask(groups, known(map(packing.unpack, counted)))


def counting(
    held: Iterable[PackedFeature], own_namespace: str
) -> tuple[list[PackedFeature], list[Refusal]]:
    """Those of a node's NodeFeatures that count, in order, and what is to be said of the others."""
    kept: list[PackedFeature] = []
    left_out: list[PackedFeature] = []
    room = FEATURES_BYTES
    for each in ordered(held, own_namespace):
        size = packing.size(each)
        if size > room or len(kept) >= MOST_FEATURES:
            left_out.append(each)
        else:
            kept.append(each)
            room -= size
    if not left_out:
        return kept, []
    first = left_out[0].metadata
    return kept, [
        Refusal(
            "",
            f"{len(left_out)} NodeFeatures do not count, {first.namespace}/{first.name} the first "
            f"of them; allowed: at most {MOST_FEATURES} a node, and {FEATURES_BYTES} bytes",
        )
    ]


def _some(said: list[Refusal]) -> list[Refusal]:
    if len(said) <= MOST_SAID:
        return said
    return [*said[:MOST_SAID], Refusal("", f"{len(said) - MOST_SAID} more are refused")]


def said_of(rule: NodeFeatureRule, policy: Policy) -> list[str]:
    """The first `faults` of the rules of one object, each with the name of its rule."""
    said = (
        f"rule {each.rule.name!r}: {message}"
        for each in named([rule])
        for message in faults(each, policy)
    )
    return list(itertools.islice(said, MOST_SAID))


def faults(named: Named, policy: Policy) -> Iterator[str]:
    """What makes no sense in a rule, or will not be written, whatever node fits it."""
    rule, path = named.rule, named.path
    yield from checking.faults(rule, path)
    written = {
        "labels": (rule.labels, policy.has_labels, "--disable-labels false"),
        "annotations": (rule.annotations, policy.has_annotations, "--disable-annotations false"),
        "extendedResources": (rule.extended_resources, policy.has_extended_resources,
                              "--disable-extended-resources false"),
        "taints": (rule.taints, policy.has_taints, "--enable-taints (enableTaints)"),
    }  # fmt: skip
    for field, (given, is_written, setting) in written.items():
        if given and not is_written:
            yield f"{path}.{field}: they are not written; allowed: with the setting {setting}"
    said: list[str] = []
    named_values: tuple[tuple[dict[str, str] | None, Callable[[str, str], None]], ...] = (
        (rule.labels, lambda name, value: permitting.label(name, value, policy)),
        (rule.annotations, permitting.annotation),
        (rule.extended_resources, permitting.extended_resource),
    )

    def report(_name: str, message: str) -> None:
        said.append(f"{path}: {message}")

    for values, check in named_values:
        fixed = {name: value for name, value in (values or {}).items() if value[:1] != "@"}
        _permitted(fixed, Known(), check, report, resolves=False)
    _taints(rule.taints or (), report)
    yield from said


def known(features: Iterable[NodeFeature]) -> Known:
    """All that NodeFeatures, in their order, say of their node."""
    return gathered(each.spec.features for each in features)


def wanted(
    features: list[NodeFeature],
    rules: Iterable[Named],
    own_namespace: str,
    policy: Policy,
    *,
    known: Known,
) -> Wanted:
    """Return what the node should have. `features` are in order, and `known` is all they say."""
    outcome, refused = evaluating.evaluate(rules, known)
    by_rules = {labelling.full_name(name): value for name, value in outcome.labels.items()}
    outcome.origins.update(
        {labelling.full_name(name): origin for name, origin in outcome.origins.items()}
    )
    result = Wanted(refused=list(refused))

    def report(name: str, message: str) -> None:
        result.refused.append(Refusal(outcome.origins.get(name, ""), message))

    if policy.has_labels:
        given = _own_labels(features, own_namespace, policy, report)
        result.labels = _permitted(
            {**given, **by_rules},
            known,
            lambda name, value: permitting.label(name, value, policy),
            report,
        )
    if policy.has_annotations:
        result.annotations = _permitted(
            outcome.annotations, known, permitting.annotation, report, resolves=False
        )
    if policy.has_extended_resources:
        result.extended_resources = _permitted(
            outcome.extended_resources, known, permitting.extended_resource, report
        )
    if policy.has_taints:
        result.taints = _taints(outcome.taints, report)
    return result


def _own_labels(
    features: Iterable[NodeFeature],
    own_namespace: str,
    policy: Policy,
    report: Callable[[str, str], None],
) -> dict[str, str]:
    """The labels that NodeFeatures carry themselves."""
    found: dict[str, str] = {}
    room = FOREIGN_BYTES
    for each in features:
        namespace = each.metadata.namespace or ""
        is_foreign = namespace != own_namespace
        if is_foreign and not policy.takes_foreign_labels:
            continue
        for name, value in (each.spec.labels or {}).items():
            full = labelling.full_name(name)
            if is_foreign:
                origin = f"{namespace}/{each.metadata.name}"
                room -= len(full) + len(value)
                try:
                    permitting.order(full, value, origin, own_namespace)
                    permitting.room(full, room, origin, FOREIGN_BYTES)
                except InvalidError as error:
                    report("", error.message)
                    continue
            if policy.allows_overwrite or full not in found:
                found[full] = value
    return found


def _permitted(
    values: dict[str, str],
    known: Known,
    check: Callable[[str, str], None],
    report: Callable[[str, str], None],
    *,
    resolves: bool = True,
) -> dict[str, str]:
    kept = {}
    for name, value in sorted(values.items()):
        full = labelling.full_name(name)
        try:
            text = permitting.resolved(full, value, known) if resolves else value
            check(full, text)
        except InvalidError as error:
            report(full, error.message)
            continue
        kept[full] = text
    return kept


def _taints(taints: Iterable[Taint], report: Callable[[str, str], None]) -> list[Taint]:
    kept: dict[tuple[str, str], Taint] = {}
    for each in taints:
        try:
            permitting.taint(each)
        except InvalidError as error:
            report(each.key, error.message)
            continue
        kept[each.key, each.effect] = each
    return [kept[key] for key in sorted(kept)]
