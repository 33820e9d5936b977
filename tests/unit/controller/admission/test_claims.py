# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a claim: each sentence names the field, the value and what is allowed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support import gpus
from tests.unit.controller.admission.test_fleet import card, fleet, partitioned

from gpudeck.api.resource import ClaimSpec
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.controller.admission import claims

CLASSES = {
    name: msgspec.convert(gpus.gpu_class(name, **spec), GPUClass)
    for name, spec in {
        "gpu": {},
        "small": {"devices": ["Partition"], "partition": {"profiles": ["1g.10gb"]}},
        "odd": {"devices": ["Partition"], "partition": {"profiles": ["5g.50gb"]}},
        "shared": {"devices": ["Share"]},
        "other": {"requirements": {"products": ["*B200*"]}},
    }.items()
}
FLEET = fleet(partitioned("a", 1), partitioned("a", 2), card("b", 1))


def asked(*requests: dict[str, Any], config: list[dict[str, Any]] | None = None) -> ClaimSpec:
    devices = {"requests": list(requests), "config": config or []}
    return msgspec.convert({"devices": devices}, ClaimSpec)


def exactly(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": "r", "exactly": {"deviceClassName": name, **fields}}


def refused(*requests: dict[str, Any]) -> list[str]:
    return [str(each) for each in claims.impossible(asked(*requests), "spec", CLASSES, FLEET)]


@pytest.mark.parametrize(
    "request_",
    [
        exactly("gpu", count=2),
        exactly("small", count=14),
        exactly("shared", count=40, capacity={"requests": {"memory": "79Gi"}}),
        exactly("gpu", allocationMode="All"),
        exactly("other", count=99),
        exactly("somebody-elses", count=99),
    ],
)
def test_what_some_node_could_give_is_let_in(request_: dict[str, Any]) -> None:
    assert refused(request_) == []


def test_more_devices_than_any_node_has_are_refused_with_the_most() -> None:
    assert refused(exactly("gpu", count=3)) == [
        "spec.devices.requests[0].exactly.count: 3 devices of GPUClass gpu are more than any node "
        "could give; all devices of a claim come from one node, and the largest gives 2"
    ]


def test_a_profile_that_no_card_has_is_refused_by_name() -> None:
    assert refused(exactly("odd")) == [
        "spec.devices.requests[0].exactly.count: no card of the cluster offers a device of "
        "GPUClass odd; none has the profile 5g.50gb"
    ]


@pytest.mark.parametrize("name", ["memory", "gpu.deckhouse.io/memory"])
def test_more_memory_than_a_card_holds_is_refused_with_the_most(name: str) -> None:
    (said,) = refused(exactly("shared", capacity={"requests": {name: "80Gi"}}))
    assert said == (
        f"spec.devices.requests[0].exactly.capacity.requests[{name}]: 80Gi is more than any share "
        "of GPUClass shared has; the largest has 81559Mi (79.6 GiB)"
    )


def test_of_several_alternatives_one_that_can_be_had_is_enough() -> None:
    few, many = {"deviceClassName": "gpu", "count": 1}, {"deviceClassName": "gpu", "count": 9}
    assert (
        refused({"name": "r", "firstAvailable": [{"name": "a", **many}, {"name": "b", **few}]})
        == []
    )
    said = refused({"name": "r", "firstAvailable": [{"name": "a", **many}, {"name": "b", **many}]})
    assert [each.partition(":")[0] for each in said] == [
        "spec.devices.requests[0].firstAvailable[0].count",
        "spec.devices.requests[0].firstAvailable[1].count",
    ]


def test_parameters_of_our_driver_are_read_strictly_and_others_left_alone() -> None:
    ours = {
        "apiVersion": "resource.gpu.deckhouse.io/v1alpha1",
        "kind": "GpuConfig",
        "sharing": {"strategy": "TimeSlicng"},
    }
    theirs = {"opaque": {"driver": "fpga.example.com", "parameters": {"kind": "Any"}}}
    config = [theirs, {"opaque": {"driver": "gpu.deckhouse.io", "parameters": ours}}]
    spec = msgspec.json.decode(msgspec.json.encode({"devices": {"config": config}}), type=ClaimSpec)
    (said,) = claims.config_problems(spec, "spec.spec")
    assert str(said) == (
        'spec.spec.devices.config[1].opaque.parameters.sharing.strategy: "TimeSlicng" is not '
        "valid; allowed: TimeSlicing or MPS"
    )
