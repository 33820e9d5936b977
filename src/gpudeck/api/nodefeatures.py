# SPDX-License-Identifier: Apache-2.0
"""NodeFeature, NodeFeatureRule and NodeFeatureGroup of nfd.k8s-sigs.io/v1alpha1.

Workers write one NodeFeature a node, GPU feature discovery another; anybody may write
more. Administrators and GPU projects write rules. The names and the shape are those of
node-feature-discovery v0.19, so that its objects and its rules work unmodified.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gpudeck.api.core import Taint
from gpudeck.api.meta import ObjectMeta, Wire
from gpudeck.api.schema import doc

OPERATORS = (
    "In",
    "NotIn",
    "InRegexp",
    "Exists",
    "DoesNotExist",
    "Gt",
    "Ge",
    "Lt",
    "Le",
    "GtLt",
    "GeLe",
    "IsTrue",
    "IsFalse",
)
"""Of expressions; the empty operator is true of everything."""
VALUE_TYPES = ("", "version")


class Nothing(Wire):
    """The value of a flag: that it is there is all that it says."""


class Flags(Wire):
    elements: Annotated[
        dict[str, Nothing] | None, doc("The names that are there.", x_map_type="atomic")
    ] = None


class Attributes(Wire):
    elements: Annotated[dict[str, str] | None, doc("Values by name.", x_map_type="atomic")] = None


class Instance(Wire):
    attributes: Annotated[dict[str, str] | None, doc("Values by name.")] = None


class Instances(Wire):
    elements: Annotated[
        list[Instance] | None, doc("One entry a thing, e.g. a PCI device.", x_list_type="atomic")
    ] = None


class Features(Wire):
    """What was found of a node, by `<domain>.<feature>`, e.g. `pci.device`."""

    flags: Annotated[dict[str, Flags] | None, doc("Features that are sets of names.")] = None
    attributes: Annotated[
        dict[str, Attributes] | None, doc("Features that are values by name.")
    ] = None
    instances: Annotated[
        dict[str, Instances] | None, doc("Features that are several things of one kind.")
    ] = None


class NodeFeatureSpec(Wire):
    features: Annotated[Features | None, doc("What rules are matched with.")] = None
    labels: Annotated[
        dict[str, str] | None, doc("Labels for the node that need no rule.", x_map_type="atomic")
    ] = None


class NodeFeature(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: Annotated[NodeFeatureSpec, doc("What was found of the node.")] = msgspec.field(
        default_factory=NodeFeatureSpec
    )


class Expression(Wire):
    op: Annotated[
        str, doc("How the value is compared; empty is true of anything.", enum=["", *OPERATORS])
    ] = ""
    value: Annotated[
        list[str] | None, doc("What it is compared with; how many depends on the operator.")
    ] = None
    type: Annotated[
        str | None,
        doc(
            "`version` compares dotted versions; empty compares whole numbers.",
            enum=list(VALUE_TYPES),
        ),
    ] = None


class Term(Wire):
    feature: Annotated[str, doc("The feature, e.g. pci.device.")]
    match_expressions: Annotated[
        dict[str, Expression] | None,
        doc("Expressions by the name of an element; all must hold."),
    ] = None
    match_name: Annotated[
        Expression | None, doc("An expression on the names of elements; one must fulfil it.")
    ] = None


class Alternative(Wire):
    match_features: Annotated[list[Term] | None, doc("Terms of which all must hold.")] = None


class Rule(Wire):
    name: Annotated[str, doc("Names the rule in messages.")]
    labels: Annotated[
        dict[str, str] | None,
        doc("Labels of a node that matches; `@<feature>.<element>` takes a value found."),
    ] = None
    labels_template: Annotated[
        str | None, doc("A template of lines `name=value`, run on what matched.")
    ] = None
    annotations: Annotated[dict[str, str] | None, doc("Annotations of a node that matches.")] = None
    vars: Annotated[
        dict[str, str] | None, doc("Values that later rules find in the feature rule.matched.")
    ] = None
    vars_template: Annotated[str | None, doc("A template of such values.")] = None
    taints: Annotated[
        list[Taint] | None, doc("Taints of a node that matches, where taints are enabled.")
    ] = None
    extended_resources: Annotated[
        dict[str, str] | None,
        doc("Capacity of a node that matches; `@<feature>.<element>` takes a value found."),
    ] = None
    match_features: Annotated[list[Term] | None, doc("Terms of which all must hold.")] = None
    match_any: Annotated[
        list[Alternative] | None, doc("Alternatives of which one must hold as well.")
    ] = None


class NodeFeatureRuleSpec(Wire):
    rules: Annotated[list[Rule], doc("The rules, used in this order.")] = msgspec.field(
        default_factory=list
    )


class NodeFeatureRule(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: Annotated[NodeFeatureRuleSpec, doc("What nodes get for their features.")] = msgspec.field(
        default_factory=NodeFeatureRuleSpec
    )


class GroupRule(Wire):
    name: Annotated[str, doc("Names the rule in messages.")]
    vars: Annotated[
        dict[str, str] | None, doc("Values that later rules find in the feature rule.matched.")
    ] = None
    vars_template: Annotated[str | None, doc("A template of such values.")] = None
    match_features: Annotated[list[Term] | None, doc("Terms of which all must hold.")] = None
    match_any: Annotated[
        list[Alternative] | None, doc("Alternatives of which one must hold as well.")
    ] = None


class NodeFeatureGroupSpec(Wire):
    feature_group_rules: Annotated[
        list[GroupRule] | None, doc("Rules of which a node of the group fulfils one.")
    ] = None


class GroupNode(Wire):
    name: Annotated[str, doc("Name of the Node.")]


class NodeFeatureGroupStatus(Wire):
    nodes: Annotated[
        list[GroupNode] | None,
        doc("The nodes of the group.", x_list_type="map", x_list_map_keys=["name"]),
    ] = None


class NodeFeatureGroup(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: Annotated[NodeFeatureGroupSpec, doc("Which nodes belong to the group.")] = msgspec.field(
        default_factory=NodeFeatureGroupSpec
    )
    status: Annotated[NodeFeatureGroupStatus | None, doc("Which nodes do.")] = None
