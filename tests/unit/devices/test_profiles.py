# SPDX-License-Identifier: Apache-2.0
"""Names of profiles, case-29."""

import pytest

from gpudeck.devices import profiles


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA GB999 (X)", "NVIDIA-GB999-X"),
        ("9" * 80, "9" * 32),
        ("1g.10gb", "1g.10gb"),
        ("1g.10gb+me", "1g.10gb.me"),
        ("", ""),
    ],
)
def test_a_name_is_the_drivers_without_what_kubernetes_refuses(driver: str, name: str) -> None:
    assert profiles.spelled(driver) == name


@pytest.mark.parametrize(
    ("name", "split"), [("1c.3g.40gb", True), ("3g.40gb", False), ("1g.10gb+me", False)]
)
def test_a_part_of_an_instance_is_told_from_the_whole(name: str, split: bool) -> None:
    assert profiles.is_split(name) is split
