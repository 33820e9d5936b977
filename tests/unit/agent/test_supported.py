# SPDX-License-Identifier: Apache-2.0
"""The ConfigMap of vendors: what is accepted, and that each refusal names its field."""

from __future__ import annotations

import pytest
import yaml

from gpudeck.agent import supported
from gpudeck.errors import InvalidError

GOOD = {
    "vendors": [{"id": "10de", "name": "nvidia"}, {"id": "9999", "name": "metax"}],
    "classes": ["03", "12"],
}


def parse(**changes: object) -> supported.Supported:
    return supported.parse({"vendors.yaml": yaml.safe_dump({**GOOD, **changes})})


def test_the_shipped_list_is_the_built_in_one() -> None:
    assert parse() == supported.DEFAULT


@pytest.mark.parametrize(
    ("class_code", "vendor", "accepted"),
    [
        (0x030000, 0x10DE, True),
        (0x030200, 0x10DE, True),
        (0x120000, 0x9999, True),
        (0x040300, 0x10DE, False),
        (0x068000, 0x10DE, False),
        (0x030000, 0x1002, False),
    ],
)
def test_class_and_vendor_decide(class_code: int, vendor: int, accepted: bool) -> None:
    assert supported.DEFAULT.accepts(class_code, vendor) is accepted


def test_a_class_may_name_its_sub_class() -> None:
    only_3d = parse(classes=["0302"])
    assert only_3d.accepts(0x030200, 0x10DE)
    assert not only_3d.accepts(0x030000, 0x10DE)


@pytest.mark.parametrize(
    ("changes", "field", "part"),
    [
        ({"vendors": []}, "vendors", "at least one"),
        ({"vendors": "nvidia"}, "vendors", "'nvidia'"),
        ({"vendors": ["10de"]}, "vendors[0]", "id, name"),
        ({"vendors": [{"id": 9999, "name": "metax"}]}, "vendors[0].id", "quoted"),
        ({"vendors": [{"id": "10DE", "name": "n"}]}, "vendors[0].id", "'10DE'"),
        ({"vendors": [{"id": "10de"}]}, "vendors[0].name", "is missing"),
        ({"vendors": [{"id": "10de", "name": "NV"}]}, "vendors[0].name", "DNS label"),
        (
            {"vendors": [{"id": "10de", "name": "a"}, {"id": "10de", "name": "b"}]},
            "vendors[1].id",
            "each id once",
        ),
        (
            {"vendors": [{"id": "10de", "name": "a"}, {"id": "1002", "name": "a"}]},
            "vendors[1].name",
            "each name once",
        ),
        (
            {"vendors": [{"id": "10de", "name": "a", "driver": "x"}]},
            "vendors[0].driver",
            "the keys id, name",
        ),
        ({"classes": [3]}, "classes[0]", "quoted"),
        ({"classes": []}, "classes", "at least one"),
        ({"clases": ["03"]}, "clases", "the keys vendors, classes"),
    ],
)
def test_a_refusal_names_field_value_and_what_is_allowed(
    changes: dict[str, object], field: str, part: str
) -> None:
    with pytest.raises(InvalidError) as refused:
        parse(**changes)
    assert refused.value.field == field
    assert refused.value.reason == "SupportedVendorsInvalid"
    assert refused.value.message.startswith(f"vendors.yaml: {field}: ")
    assert part in refused.value.message


def test_all_that_is_wrong_is_named_at_once() -> None:
    vendors = [{"id": 9999, "name": "a"}, {"id": "10de", "name": "A"}, {"id": "10de"}]
    with pytest.raises(InvalidError) as refused:
        parse(vendors=vendors, classes=["03", 3])
    message = refused.value.message
    assert message.startswith("vendors.yaml: 4 fields are wrong: (1) vendors[0].id: ")
    assert "(2) vendors[1].name: " in message
    assert "(3) vendors[2].name: is missing" in message
    assert "(4) classes[1]: 3 is" in message


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (None, "data"),
        ({}, "data"),
        ({"vendor.yaml": ""}, "data.vendor.yaml"),
        ({"vendors.yaml": ""}, "vendors.yaml"),
        ({"vendors.yaml": "a: [b"}, "vendors.yaml"),
        ({"vendors.yaml": "- a"}, "vendors.yaml"),
    ],
)
def test_what_is_no_document_is_refused(content: dict[str, str] | None, field: str) -> None:
    with pytest.raises(InvalidError) as refused:
        supported.parse(content)
    assert refused.value.field == field
    assert "\n" not in refused.value.message
