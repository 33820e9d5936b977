# SPDX-License-Identifier: Apache-2.0
"""What a Node should have, from its NodeFeatures and all rules. Pure; the master calls it.

NodeFeatures of the master's own namespace come first, then the others by name; a later one
overrides. Rules are used in the order of the names of their objects. What may not be written,
or makes no sense, is left out and reported; all else goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from gpudeck.api.core import Taint
from gpudeck.api.nodefeatures import NodeFeature, NodeFeatureGroupSpec, NodeFeatureRule
from gpudeck.errors import InvalidError
from gpudeck.features import grouping, labelling, packing, permitting
from gpudeck.features.known import Known
from gpudeck.features.packing import PackedFeature
from gpudeck.features.permitting import Policy
from gpudeck.features.rules import checking, evaluating
from gpudeck.features.rules.evaluating import Named, Refusal


class Wanted(msgspec.Struct):
    """What features and rules give a node, all of it permitted."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    taints: list[Taint] = msgspec.field(default_factory=list)
    extended_resources: dict[str, str] = msgspec.field(default_factory=dict)
    refused: list[Refusal] = msgspec.field(default_factory=list)


def ordered(features: Iterable[NodeFeature], own_namespace: str) -> list[NodeFeature]:
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
    features = _unpacked(held, own_namespace)
    found = known(features)
    answers = grouping.ask(groups, found)
    return wanted(features, rules, own_namespace, policy, known=found), answers


def ask(
    held: Iterable[PackedFeature], *, own_namespace: str, groups: Mapping[str, NodeFeatureGroupSpec]
) -> dict[str, grouping.Answer]:
    """Whether a node belongs to groups."""
    return grouping.ask(groups, known(_unpacked(held, own_namespace)))


def _unpacked(held: Iterable[PackedFeature], own_namespace: str) -> list[NodeFeature]:
    return ordered(map(packing.unpack, held), own_namespace)


def said_of(rule: NodeFeatureRule, policy: Policy) -> list[str]:
    """All `faults` of the rules of one object, each with the name of its rule."""
    return [
        f"rule {each.rule.name!r}: {message}"
        for each in named([rule])
        for message in faults(each, policy)
    ]


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
    found = Known()
    for each in features:
        found.add(each.spec.features)
    return found


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
    for each in features:
        namespace = each.metadata.namespace or ""
        is_foreign = namespace != own_namespace
        if is_foreign and not policy.takes_foreign_labels:
            continue
        for name, value in (each.spec.labels or {}).items():
            full = labelling.full_name(name)
            if is_foreign:
                try:
                    permitting.order(
                        full, value, f"{namespace}/{each.metadata.name}", own_namespace
                    )
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
