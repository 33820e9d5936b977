# SPDX-License-Identifier: Apache-2.0
"""Amounts and counts that mean nothing: each sentence has the field, the value, what is allowed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.admission.test_claims import asked, exactly

from gpudeck.controller.admission import amounts

CLASSES = {"shared"}
WHERE = "spec.devices.requests[0].exactly"
MEMORY, CORES = (
    "at least 1Mi, such as 8Gi",
    "1 to 100, the percentage of the card's multiprocessors",
)


def refused(*requests: dict[str, Any]) -> list[str]:
    return [str(each) for each in amounts.problems(asked(*requests), "spec", CLASSES)]


def share(name: str, amount: str, class_name: str = "shared") -> dict[str, Any]:
    return exactly(class_name, capacity={"requests": {name: amount}})


@pytest.mark.parametrize(
    ("name", "amount"),
    [
        ("memory", "1Mi"),
        ("memory", "80G"),
        ("gpu.deckhouse.io/memory", "8Gi"),
        ("cores", "1"),
        ("cores", "100"),
        ("cores", "5e1"),
        ("multiprocessors", "16"),
    ],
)
def test_amounts_that_mean_something_are_let_in(name: str, amount: str) -> None:
    assert refused(share(name, amount)) == []


@pytest.mark.parametrize(
    ("name", "amount", "allowed"),
    [
        ("memory", "-1Gi", MEMORY),
        ("memory", "0", MEMORY),
        ("memory", "8", MEMORY),
        ("gpu.deckhouse.io/memory", "-8Gi", MEMORY),
        ("cores", "0", CORES),
        ("cores", "-5", CORES),
        ("cores", "101", CORES),
        ("cores", "1Gi", CORES),
        ("multiprocessors", "0", "at least 1"),
    ],
)
def test_amounts_that_mean_nothing_are_refused(name: str, amount: str, allowed: str) -> None:
    field = f"{WHERE}.capacity.requests[{name}]"
    assert refused(share(name, amount)) == [f"{field}: {amount} is not valid; allowed: {allowed}"]
    assert refused(share(name, amount, "somebody-elses")) == []


def test_a_capacity_that_no_device_of_ours_has_is_refused_with_those_that_there_are() -> None:
    assert refused(share("ram", "8Gi")) == [
        f"{WHERE}.capacity.requests[ram]: is no capacity of these devices; "
        "allowed: memory or cores or multiprocessors"
    ]


def test_more_devices_than_a_claim_can_have_are_refused() -> None:
    most = "is not valid; allowed: at most 32 devices in one claim"
    assert refused(exactly("shared", count=32)) == []
    assert refused(exactly("shared", count=33)) == [f"{WHERE}.count: 33 {most}"]
    both = exactly("shared", count=20), exactly("somebody-elses", count=13)
    assert refused(*both) == [f"spec.devices.requests: 33 devices in all {most}"]
    assert refused(exactly("somebody-elses", count=33)) == []


def test_each_alternative_is_looked_at_and_the_least_of_them_counts() -> None:
    some = [
        {"name": "a", "deviceClassName": "shared", "count": 32},
        {"name": "b", "deviceClassName": "shared", "count": 1},
    ]
    request = {"name": "r", "firstAvailable": some}
    assert refused(request, request) == []
    some[1]["capacity"] = {"requests": {"cores": "200"}}
    (said,) = refused(request)
    assert said.startswith("spec.devices.requests[0].firstAvailable[1].capacity.requests[cores]")
