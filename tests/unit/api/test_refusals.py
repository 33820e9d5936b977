# SPDX-License-Identifier: Apache-2.0
"""A refusal shows what was given, and stays short enough for a condition."""

from gpudeck import errors


def test_a_long_value_is_cut() -> None:
    error = errors.not_valid("data.x", ["y" * 100_000], "a text", reason="Wrong")
    assert error.message.startswith("data.x: ['yyy")
    assert error.message.endswith("… is not valid; allowed: a text")
    assert len(error.message) < 300
    assert (error.field, error.allowed, error.reason) == ("data.x", "a text", "Wrong")
