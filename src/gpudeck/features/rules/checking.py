# SPDX-License-Identifier: Apache-2.0
"""What makes no sense in a rule, whether or not a node fulfils it now. Pure.

The master says it on the NodeFeatureRule as soon as that is there: a mistake would else show
on the day on which the first node fits.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudeck.api.nodefeatures import Rule, Term
from gpudeck.errors import InvalidError
from gpudeck.features import templates
from gpudeck.features.rules import expressions

_FLAGS = ("kernel.loadedmodule", "kernel.enabledmodule")
"""Features without values. cpu.cpuid has both."""


def faults(rule: Rule, path: str) -> Iterator[str]:
    """One sentence for each, with the path of the field."""
    for name, text in (("labels", rule.labels_template), ("vars", rule.vars_template)):
        try:
            templates.check(text or "", f"{path}.{name}Template")
        except InvalidError as error:
            yield error.message
    for where, term in _terms(rule, path):
        yield from _of_term(term, where)


def _terms(rule: Rule, path: str) -> Iterator[tuple[str, Term]]:
    for index, term in enumerate(rule.match_features or ()):
        yield f"{path}.matchFeatures[{index}]", term
    for number, each in enumerate(rule.match_any or ()):
        for index, term in enumerate(each.match_features or ()):
            yield f"{path}.matchAny[{number}].matchFeatures[{index}]", term


def _of_term(term: Term, path: str) -> Iterator[str]:
    if "." not in term.feature:
        yield f"{path}.feature: {term.feature!r} is not valid; allowed: <domain>.<feature>"
    named = {f"{path}.matchExpressions[{name}]": expression
             for name, expression in (term.match_expressions or {}).items()}  # fmt: skip
    if term.match_name is not None:
        named[f"{path}.matchName"] = term.match_name
    for where, expression in named.items():
        try:
            expressions.check(expression, where)
        except InvalidError as error:
            yield error.message
            continue
        is_value_asked = expression.op not in expressions.PRESENCE
        if is_value_asked and term.feature.lower() in _FLAGS and expression is not term.match_name:
            yield (
                f"{where}.op: {expression.op!r} is true of nothing, since {term.feature} has "
                "names without values; allowed: Exists, DoesNotExist"
            )
