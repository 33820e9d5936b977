# SPDX-License-Identifier: Apache-2.0
"""What an amount of a share may be."""

from __future__ import annotations

import pytest

from gpudeck.dra import amounts
from gpudeck.errors import InvalidError


@pytest.mark.parametrize(
    ("text", "value"), [("4Gi", 4 << 30), ("1Mi", 1 << 20), ("2G", 2_000_000_000)]
)
def test_an_amount_is_a_quantity(text: str, value: int) -> None:
    assert amounts.parse(text, "--share-memory") == value


@pytest.mark.parametrize("text", ["", "much", "0", "1Ki", "-4Gi", "4GB"])
def test_what_is_no_amount_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidError) as raised:
        amounts.parse(text, "--share-memory")
    assert raised.value.message == (
        f"--share-memory: {text!r} is not valid; allowed: a Kubernetes quantity of at least 1Mi, "
        "such as 4Gi"
    )
