# SPDX-License-Identifier: Apache-2.0
"""Quantities are read as the API server reads them."""

from __future__ import annotations

import pytest

from gpudeck.api import quantities
from gpudeck.errors import InvalidError


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("40G", 40_000_000_000),
        ("80Gi", 80 * 1024**3),
        ("81559Mi", 81559 * 1024**2),
        ("1.5Gi", 3 * 1024**3 // 2),
        ("1e9", 10**9),
        ("1E", 10**18),
        ("1E3", 1000),
        ("500m", 1),
        ("-1k", -1000),
        ("0", 0),
        (42, 42),
        (".5k", 500),
    ],
)
def test_quantities_are_read_as_whole_numbers(text: str | int, number: int) -> None:
    assert quantities.parse(text) == number


@pytest.mark.parametrize("text", ["", "40GB", "Gi", "1 Gi", "0x10", "1e", "1" * 100])
def test_what_is_no_quantity_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(InvalidError) as caught:
        quantities.parse(text, "spec.requirements.memory.min")
    assert caught.value.field == "spec.requirements.memory.min"
    assert caught.value.reason == "InvalidQuantity"


@pytest.mark.parametrize("text", ["81559Mi", "80Gi", "1023Ki", "7", "0", "1Ei"])
def test_what_is_rendered_reads_back_as_itself(text: str) -> None:
    assert quantities.render(quantities.parse(text)) == text
