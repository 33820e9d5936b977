# SPDX-License-Identifier: Apache-2.0
"""What rules give a node for its features. Pure; the master and the worker call it.

Rules are used in order, and what one gives (labels and vars, named as the rule names
them) later ones find as the feature `rule.matched`. A rule that makes no sense gives
nothing and is reported by name with the path of the field; the other rules go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from gpudeck import errors
from gpudeck.api.core import Taint
from gpudeck.api.nodefeatures import Alternative, Expression, GroupRule, Rule, Term
from gpudeck.errors import InvalidError
from gpudeck.features import templates
from gpudeck.features.known import Element, Known
from gpudeck.features.rules import effort, expressions
from gpudeck.features.rules.expressions import Predicate

Asked = tuple[str, Expression, Predicate]
"""An expression of a term, by the name of what it asks for."""
Matched = dict[str, dict[str, list[Element]]]
"""What matched, by domain and feature: what templates see."""
MATCHED = "rule.matched"


class Outcome(msgspec.Struct):
    """What one rule gives, or several together."""

    is_match: bool = False
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    vars: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    taints: list[Taint] = msgspec.field(default_factory=list)
    extended_resources: dict[str, str] = msgspec.field(default_factory=dict)
    origins: dict[str, str] = msgspec.field(default_factory=dict)
    """Whose each name is: that of the object with the last rule that gives it."""

    def add(self, other: Outcome, origin: str) -> None:
        """Add what a later rule gives; of two values the later is valid."""
        names = (*other.labels, *other.annotations, *other.extended_resources)
        self.origins.update(dict.fromkeys((*names, *(each.key for each in other.taints)), origin))
        self.is_match = self.is_match or other.is_match
        self.labels.update(other.labels)
        self.vars.update(other.vars)
        self.annotations.update(other.annotations)
        self.taints.extend(other.taints)
        self.extended_resources.update(other.extended_resources)


class Refusal(msgspec.Struct, frozen=True):
    """A rule, or what it gives, that cannot be used, and why."""

    origin: str
    """The name of the NodeFeatureRule, or of the NodeFeature."""
    message: str


class Named(msgspec.Struct, frozen=True):
    """A rule and where it stands."""

    origin: str
    path: str
    rule: Rule


def evaluate(rules: Iterable[Named], known: Known) -> tuple[Outcome, list[Refusal]]:
    """Return what all rules give together. `known` gets `rule.matched` as they are used."""
    total, refused = Outcome(), []
    earlier = known.attributes[MATCHED] = dict(known.attributes.get(MATCHED, {}))
    for each in rules:
        try:
            outcome = execute(each.rule, known, each.path)
        except InvalidError as error:
            refused.append(Refusal(each.origin, f"rule {each.rule.name!r}: {error.message}"))
            continue
        total.add(outcome, each.origin)
        earlier.update(outcome.labels)
        earlier.update(outcome.vars)
    return total, refused


def execute(rule: Rule, known: Known, path: str) -> Outcome:
    """Return what one rule gives. InvalidError if it makes no sense, or too much work."""
    labels: dict[str, str] = {}
    values: dict[str, str] = {}
    with effort.bounded():
        for matched in matches(rule, known, path):
            if matched is None:
                return Outcome()
            _expand(rule.labels_template, matched, labels, f"{path}.labelsTemplate")
            _expand(rule.vars_template, matched, values, f"{path}.varsTemplate")
    return Outcome(
        is_match=True,
        labels={**labels, **(rule.labels or {})},
        vars={**values, **(rule.vars or {})},
        annotations=dict(rule.annotations or {}),
        taints=list(rule.taints or ()),
        extended_resources=dict(rule.extended_resources or {}),
    )


def is_member(rules: Iterable[GroupRule], known: Known, path: str) -> bool:
    """Whether a node fulfils one of the rules of a NodeFeatureGroup. InvalidError as `execute`."""
    known = Known(known.flags, dict(known.attributes), known.instances)
    known.attributes[MATCHED] = {}
    for index, each in enumerate(rules):
        rule = Rule(
            name=each.name,
            vars=each.vars,
            vars_template=each.vars_template,
            match_features=each.match_features,
            match_any=each.match_any,
        )
        outcome = execute(rule, known, f"{path}[{index}]")
        if outcome.is_match:
            return True
        known.attributes[MATCHED].update(outcome.vars)
    return False


def matches(rule: Rule, known: Known, path: str) -> Iterable[Matched | None]:
    """Yield what matched, once for each set of terms that holds; None if the rule does not."""
    if rule.match_any:
        found = _alternatives(rule.match_any, known, f"{path}.matchAny")
        first = next(found, None)
        yield first
        if first is not None and (rule.labels_template or rule.vars_template):
            yield from found  # Without a template the first one says all.
    if rule.match_features:
        yield match(rule.match_features, known, f"{path}.matchFeatures")


def _alternatives(alternatives: list[Alternative], known: Known, path: str) -> Iterator[Matched]:
    for index, each in enumerate(alternatives):
        matched = match(each.match_features or (), known, f"{path}[{index}].matchFeatures")
        if matched is not None:
            yield matched


def match(terms: Iterable[Term], known: Known, path: str) -> Matched | None:
    """Return what matched if all terms hold, else None."""
    matched: Matched = {}
    for index, term in enumerate(terms):
        elements = _term(term, known, f"{path}[{index}]")
        if elements is None:
            return None
        # Templates find it as the rule spells it, and in small letters as the documents have it.
        for name in {term.feature, term.feature.lower()}:
            domain, _, feature = name.partition(".")
            matched.setdefault(domain, {}).setdefault(feature, []).extend(elements)
    return matched


def _term(term: Term, known: Known, path: str) -> list[Element] | None:
    name = term.feature.lower()
    flags, values = known.flags.get(name), known.attributes.get(name)
    things = known.instances.get(name)
    if flags is None and values is None and things is None:
        return None
    found: list[Element] = []
    if term.match_expressions is not None:
        asked = [
            (
                each,
                expression,
                expressions.predicate(expression, f"{path}.matchExpressions[{each}]"),
            )
            for each, expression in sorted(term.match_expressions.items())
        ]
        named = _named(asked, flags, values)
        matching = [each for each in things or () if _named(asked, None, each) is not None]
        if named is None and not matching:
            return None
        found += [*(named or ()), *matching]
    if term.match_name is not None:
        holds = expressions.predicate(term.match_name, f"{path}.matchName")
        named = list(_names(holds, flags, values, things))
        if not named:
            return None
        found += named
    return found


def _named(
    asked: list[Asked], flags: Collection[str] | None, values: Mapping[str, str] | None
) -> list[Element] | None:
    """What fulfils all expressions, None if one is not; a name may be a flag or a value.

    DoesNotExist must be true of both, every other operator of one.
    """
    if flags is None and values is None:
        return None
    effort.spend(len(asked))
    found: list[Element] = []
    for name, expression, holds in asked:
        held: list[tuple[bool, Element]] = []
        if flags is not None:
            held.append((expressions.of_flag(expression, name in flags), {"Name": name}))
        if values is not None:
            value = values.get(name)
            held.append((holds(value), {"Name": name, "Value": value or ""}))
        true_of = [element for is_true, element in held if is_true]
        if len(true_of) < (len(held) if expression.op == "DoesNotExist" else 1):
            return None
        found += true_of
    return found


def _names(
    holds: Predicate,
    flags: Collection[str] | None,
    values: Mapping[str, str] | None,
    things: Sequence[Element] | None,
) -> Iterator[Element]:
    effort.spend(len(flags or ()) + len(values or ()) + sum(map(len, things or ())))
    for name in sorted(filter(holds, flags or ())):
        yield {"Name": name}
    for name in sorted(filter(holds, values or ())):
        yield {"Name": name, "Value": (values or {})[name]}
    for thing in things or ():
        if any(map(holds, thing)):
            yield thing


def _expand(template: str | None, matched: Matched, into: dict[str, str], path: str) -> None:
    """Run a template; each line of its text that is not blank is `name=value`."""
    if not template:
        return
    for line in templates.render(template, matched, path).splitlines():
        text = line.strip()
        name, equals, value = text.partition("=")
        if text and not equals:
            raise errors.not_valid(path, text, "lines of name=value")
        if text:
            into[name] = value
