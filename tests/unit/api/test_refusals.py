# SPDX-License-Identifier: Apache-2.0
"""A refusal shows what was given, and stays short enough for a condition."""

from gpudeck import errors


def test_a_long_value_is_cut() -> None:
    error = errors.not_valid("data.x", ["y" * 100_000], "a text", reason="Wrong")
    assert error.message.startswith("data.x: ['yyy")
    assert error.message.endswith("… is not valid; allowed: a text")
    assert len(error.message) < 300
    assert (error.field, error.allowed, error.reason) == ("data.x", "a text", "Wrong")


def test_what_is_not_there_is_said_to_be_missing() -> None:
    error = errors.not_valid("sharing.mps.resources", None, "a list")
    assert error.message == "sharing.mps.resources: is missing; allowed: a list"


def refusals(count: int, size: int = 20) -> list[errors.InvalidError]:
    return [errors.not_valid(f"field{n}", "x" * size, "y", reason="Wrong") for n in range(count)]


def test_several_wrong_fields_are_named_by_one_error() -> None:
    first, second = refusals(2)
    assert errors.together([first]) is first
    assert errors.together([first, first]) is first
    error = errors.together([first, second])
    assert error.message == f"2 fields are wrong: (1) {first.message}; (2) {second.message}"
    assert (error.field, error.allowed, error.reason) == ("field0", "y", "Wrong")


def test_more_wrong_fields_than_an_event_can_show_are_counted() -> None:
    error = errors.together(refusals(100_000, 180))
    assert error.message.startswith("100000 fields are wrong: (1) field0: ")
    assert error.message.endswith("; and 99997 more")
    assert len(error.message) < 900
    # One that is longer than that is shown all the same.
    assert "field0" in errors.together(refusals(2, 10_000)).message


def test_of_many_names_the_first_are_listed() -> None:
    assert errors.listed(["a", "b"]) == "a, b"
    assert errors.listed(map(str, range(100)), 3) == "0, 1, 2 and 97 more"
