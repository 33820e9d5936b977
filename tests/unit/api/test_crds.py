# SPDX-License-Identifier: Apache-2.0
"""The definitions in the chart are those that the structs give, in a form the server takes."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from gpudeck.api import crds

CHART = pathlib.Path(__file__).parents[3] / "charts" / "gpudeck" / "crds"


@pytest.mark.parametrize("definition", crds.DEFINITIONS, ids=crds.filename)
def test_the_chart_has_what_the_structs_give(definition: crds.Definition) -> None:
    """`make golden` rewrites the files."""
    committed = (CHART / crds.filename(definition)).read_text(encoding="utf-8")
    assert committed == crds.render(definition)


def test_the_chart_has_no_other_definition() -> None:
    expected = {crds.filename(each) for each in crds.DEFINITIONS}
    assert {path.name for path in CHART.iterdir()} == expected


def schemas(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from schemas(child, f"{path}.{name}")
    if "items" in schema:
        yield from schemas(schema["items"], path + "[]")


def every_schema() -> list[tuple[str, dict[str, Any]]]:
    roots = [
        crds.build(each)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for each in crds.DEFINITIONS
    ]
    return [found for root in roots for found in schemas(root)]


def test_every_field_has_a_type_and_a_description() -> None:
    own = {".apiVersion", ".kind", ".metadata"}
    for path, schema in every_schema():
        assert "type" in schema or schema.get("x-kubernetes-int-or-string"), path
        assert path in own or path.endswith("[]") or schema.get("description"), path


def test_every_key_of_a_list_map_is_required_or_has_a_default() -> None:
    """apiextensions refuses the definition otherwise (Kubernetes 1.37)."""
    for path, schema in every_schema():
        for key in schema.get("x-kubernetes-list-map-keys", []):
            items = schema["items"]
            assert key in items["required"] or "default" in items["properties"][key], path


def test_every_rule_says_what_is_wrong() -> None:
    for path, schema in every_schema():
        for rule in schema.get("x-kubernetes-validations", []):
            assert rule["message"], path
