# SPDX-License-Identifier: Apache-2.0
import pytest
from benchmarks import figures


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 2.0), (0.99, 4.0), (0.75, 3.0), (0.0, 1.0), (1.0, 4.0)]
)
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert figures.percentile([4.0, 1.0, 3.0, 2.0], share) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (200.53, "201"),
        (14.94, "14.9"),
        (0.524, "0.52"),
        (0.0352, "0.035"),
        (0.00584, "0.0058"),
    ],
)
def test_a_value_has_as_many_digits_as_say_something(value: float, expected: str) -> None:
    assert figures.shown(value) == expected


def test_a_spread_is_the_median_between_least_and_most() -> None:
    assert figures.spread([3.0, 1.0, 20.0]) == "3.00 [1.00..20.0]"
    assert figures.spread([3.0]) == "3.00"
