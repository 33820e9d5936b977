# SPDX-License-Identifier: Apache-2.0
"""Documents are read by path, and on behind what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from gpudeck.api import fields
from gpudeck.api.fields import Field
from gpudeck.errors import InvalidError


def refused(value: Any, reader: Any, **more: Any) -> str:
    with pytest.raises(InvalidError) as caught:
        fields.read(value, reader, reason="Wrong", **more)
    assert caught.value.reason == "Wrong"
    return caught.value.message


def point(field: Field) -> tuple[int, str]:
    found = field.mapping("x", "name")
    x = found.need("x", lambda each: each.whole(least=0, allowed="from 0"), -1)
    return x, found.read("name", Field.text, "none")


def points(field: Field) -> tuple[tuple[int, str], ...]:
    return field.each(point, "a list of points")


def test_what_is_right_is_read_and_null_is_as_if_it_were_not_there() -> None:
    found = fields.read([{"x": 1, "name": None}, {"x": 2, "name": "b"}], points, reason="Wrong")
    assert found == ((1, "none"), (2, "b"))


def test_all_that_is_wrong_is_named_with_its_path() -> None:
    value = [{"x": -1}, 5, {"name": 7, "y": 1}]
    assert refused(value, points, path="points") == (
        "5 fields are wrong: (1) points[0].x: -1 is not valid; allowed: from 0; "
        "(2) points[1]: 5 is not valid; allowed: a mapping with x, name; "
        "(3) points[2].y: 1 is not valid; allowed: the keys x, name; "
        "(4) points[2].x: is missing; allowed: from 0; "
        "(5) points[2].name: 7 is not valid; allowed: a text"
    )


def test_the_whole_document_has_a_name_of_its_own() -> None:
    assert refused(5, points, name="the file").startswith("the file: 5 is not valid")


def test_a_key_that_belongs_elsewhere_is_told_where() -> None:
    said = refused({"x": 1, "y": None}, point, hints={"y": "flags"})
    assert said == "y: 'null' is not valid; allowed: the keys x, name; y belongs to flags"


def test_names_that_people_choose_are_quoted_and_cut() -> None:
    def named(field: Field) -> dict[str, int]:
        found = field.entries("a mapping", names="the name")
        return {name: each.whole(least=0, allowed="from 0") for name, each in found}

    assert fields.read({"a.b": 1}, named, reason="Wrong", path="by") == {"a.b": 1}
    assert refused({"a.b": "x"}, named, path="by").startswith('by["a.b"]: ')
    assert refused({5: 1}, named, path="by").startswith("by: the name: 5 is not valid")
    assert len(refused({"k" * 100_000: "x"}, named, path="by")) < 200


def test_a_mapping_below_a_wrong_one_says_nothing_more() -> None:
    def nested(field: Field) -> bool | None:
        return field.mapping("a").below("a", "b").below("b", "c").read("c", Field.boolean, None)

    assert fields.read({"a": {"b": {"c": True}}}, nested, reason="Wrong") is True
    assert fields.read({}, nested, reason="Wrong") is None
    assert refused({"a": {"b": 1}}, nested).startswith("a.b: 1 is not valid")
