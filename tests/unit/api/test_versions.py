# SPDX-License-Identifier: Apache-2.0
"""Driver and compute versions become strict semantic versions."""

from __future__ import annotations

import re

import pytest

from gpudeck.api import versions
from gpudeck.errors import InvalidError

_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("570.86.05", "570.86.5"),
        ("550.54", "550.54.0"),
        ("9.0", "9.0.0"),
        ("12", "12.0.0"),
        ("v580.95.05", "580.95.5"),
        ("570.86.05-grid", "570.86.5+grid"),
        ("12.8.93.1", "12.8.93+1"),
        ("550.54.14 (open)", "550.54.14+open"),
        ("", None),
        (None, None),
        ("unknown", None),
        ("9" * 30, None),
    ],
)
def test_versions_are_normalised_and_never_dropped(text: str | None, version: str | None) -> None:
    assert versions.normalise(text) == version
    assert version is None or _SEMVER.fullmatch(version)


def test_long_build_metadata_is_cut_to_what_an_attribute_holds() -> None:
    version = versions.normalise("1.2.3-" + "a-" * 60)
    assert version is not None
    assert len(version) <= 64
    assert _SEMVER.fullmatch(version)


def test_a_maximum_admits_everything_below_its_last_number() -> None:
    assert versions.upper_bound("550", "max") == (551, 0, 0)
    assert versions.upper_bound("8.9", "max") == (8, 10, 0)
    assert versions.upper_bound("570.86.05", "max") == (570, 86, 6)
    assert versions.lower_bound("550", "min") == (550, 0, 0)


def test_versions_compare_as_numbers() -> None:
    lower, higher = versions.key("8.9"), versions.key("8.10")
    assert lower is not None
    assert higher is not None
    assert lower < higher


@pytest.mark.parametrize("text", ["", "8.x", "1.2.3.4", "-1", "8."])
def test_a_bound_that_is_no_version_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(InvalidError) as caught:
        versions.lower_bound(text, "spec.requirements.driverVersion.min")
    assert caught.value.field == "spec.requirements.driverVersion.min"
    assert repr(text) in caught.value.message
