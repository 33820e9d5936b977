# SPDX-License-Identifier: Apache-2.0
"""CustomResourceDefinitions of gpudeck, generated from the wire structs.

`python -m gpudeck.api.crds DIRECTORY` writes one file a kind; the files in the
chart are these. The structs say what a field is; this module adds what only a
definition has: names, columns, rules over the whole object.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from typing import Any

import msgspec
import yaml

from gpudeck.api import openapi, resources, schema
from gpudeck.api.nodefeatures import NodeFeature, NodeFeatureGroup, NodeFeatureRule
from gpudeck.api.openapi import Schema
from gpudeck.api.resources import Resource
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU

_HEADER = """\
# SPDX-License-Identifier: Apache-2.0
# Generated from the wire structs of gpudeck.api; `make golden` writes it.
"""


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of `kubectl get`; a wide one stands behind `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


@dataclasses.dataclass(frozen=True)
class Definition:
    """What a definition has beyond the schema of its struct."""

    resource: Resource
    struct: type[msgspec.Struct]
    description: str
    short_name: str
    """Empty for none."""
    columns: tuple[Column, ...]
    properties: Schema = dataclasses.field(default_factory=dict)
    rules: tuple[dict[str, str], ...] = ()


DEFINITIONS = (
    Definition(
        resource=resources.PHYSICAL_GPU,
        struct=PhysicalGPU,
        description="A PhysicalGPU is one card in one node of the cluster; gpudeck writes it.",
        short_name="pgpu",
        properties={"spec": {"type": "object", "description": "Empty: a card is found, not made."}},
        columns=(
            Column("Node", ".status.nodeInfo.nodeName"),
            Column("Product", ".status.capabilities.productName"),
            Column("Phase", ".status.phase"),
            Column("Occupancy", ".status.occupancy.state"),
            Column("MemoryMiB", ".status.capabilities.memoryMiB", "integer"),
            Column("Address", ".status.pciInfo.address", wide=True),
            Column("UUID", ".status.currentState.uuid", wide=True),
            Column("Driver", ".status.currentState.driverVersion", wide=True),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ),
    ),
    Definition(
        resource=resources.GPU_CLASS,
        struct=GPUClass,
        description=(
            "A GPUClass is what a group of users may ask for; gpudeck keeps a DeviceClass "
            "of the same name for it."
        ),
        short_name="gpuc",
        columns=(
            Column("Resource", ".status.extendedResourceName"),
            Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
            Column("GPUs", ".status.matching.gpus", "integer"),
            Column("Devices", ".status.matching.devices", "integer"),
            Column("Free", ".status.free", "integer"),
            Column("Allocated", ".status.allocated", "integer"),
            Column("Message", ".status.message", wide=True),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ),
        rules=(
            schema.rule(
                "has(self.spec.extendedResourceName) || self.metadata.name.size() <= 63",
                "a name of more than 63 characters needs spec.extendedResourceName",
            ),
        ),
    ),
    Definition(
        resource=resources.NODE_FEATURE,
        struct=NodeFeature,
        description="A NodeFeature is what was found of one node; workers write it.",
        short_name="",
        columns=(
            Column("Node", r".metadata.labels.nfd\.node\.kubernetes\.io/node-name"),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ),
    ),
    Definition(
        resource=resources.NODE_FEATURE_RULE,
        struct=NodeFeatureRule,
        description="A NodeFeatureRule gives labels and more to nodes by their features.",
        short_name="nfr",
        columns=(Column("Age", ".metadata.creationTimestamp", "date"),),
    ),
    Definition(
        resource=resources.NODE_FEATURE_GROUP,
        struct=NodeFeatureGroup,
        description="A NodeFeatureGroup lists the nodes that have given features.",
        short_name="nfg",
        columns=(Column("Age", ".metadata.creationTimestamp", "date"),),
    ),
)


def build(definition: Definition) -> dict[str, Any]:
    """Return the CustomResourceDefinition as the API server takes it."""
    resource = definition.resource
    short_names = {"shortNames": [definition.short_name]} if definition.short_name else {}
    return {
        "apiVersion": resources.CUSTOM_RESOURCE_DEFINITION.api_version,
        "kind": resources.CUSTOM_RESOURCE_DEFINITION.kind,
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                **short_names,
                "categories": ["gpu"],
            },
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    **_subresources(definition),
                    "additionalPrinterColumns": [_column(each) for each in definition.columns],
                    "schema": {"openAPIV3Schema": _root(definition)},
                }
            ],
        },
    }


def _subresources(definition: Definition) -> dict[str, Any]:
    has_status = "status" in openapi.properties(definition.struct)
    return {"subresources": {"status": {}}} if has_status else {}


def _column(column: Column) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return {**entry, "priority": 1} if column.wide else entry


def _root(definition: Definition) -> Schema:
    generated = openapi.properties(definition.struct)
    root: Schema = {
        "type": "object",
        "description": definition.description,
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            **definition.properties,
            **generated,
        },
    }
    if "spec" in generated:
        root["required"] = ["spec"]
    if definition.rules:
        root["x-kubernetes-validations"] = list(definition.rules)
    return root


def render(definition: Definition) -> str:
    """Return the definition as a YAML file."""
    body = yaml.safe_dump(build(definition), sort_keys=False, width=100, allow_unicode=True)
    return _HEADER + body


def filename(definition: Definition) -> str:
    """Return the name of its file, as the chart has it."""
    return f"{definition.resource.group}_{definition.resource.plural}.yaml"


def main(arguments: list[str]) -> int:
    """Write all definitions into the directory that is the one argument."""
    if len(arguments) != 1:
        print("usage: python -m gpudeck.api.crds DIRECTORY", file=sys.stderr)
        return 2
    directory = pathlib.Path(arguments[0])
    directory.mkdir(parents=True, exist_ok=True)
    for definition in DEFINITIONS:
        (directory / filename(definition)).write_text(render(definition), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
