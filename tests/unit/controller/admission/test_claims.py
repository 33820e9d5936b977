# SPDX-License-Identifier: Apache-2.0
"""What claims may ask of GPUClasses, and the amounts that they get by default."""

from __future__ import annotations

from typing import Any

import msgspec

from gpudeck.api.resource import ClaimSpec
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.controller.admission import claims

HERE = claims.Namespace("team-a", {"team": "a", "tier": "gold"})


def gpu_class(**spec: Any) -> dict[str, GPUClass]:
    found = msgspec.convert({"metadata": {"name": "small"}, "spec": spec}, GPUClass)
    return {"small": found}


def claim(*requests: dict[str, Any], config: list[Any] | None = None) -> ClaimSpec:
    devices = {"requests": list(requests), "config": config or []}
    return msgspec.json.decode(msgspec.json.encode({"devices": devices}), type=ClaimSpec)


def exactly(**fields: Any) -> dict[str, Any]:
    return {"name": "gpu", "exactly": {"deviceClassName": "small", **fields}}


def texts(spec: ClaimSpec, classes: dict[str, GPUClass]) -> list[str]:
    return [each.message for each in claims.problems(spec, "spec", classes, HERE)]


def test_a_claim_of_a_class_without_limits_is_taken() -> None:
    assert texts(claim(exactly(count=8)), gpu_class()) == []


def test_a_namespace_without_the_labels_is_refused_with_the_labels() -> None:
    usage = {
        "namespaceSelector": {
            "matchLabels": {"team": "b"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold", "blue"]}],
        }
    }
    assert texts(claim(exactly()), gpu_class(usage=usage)) == [
        'spec.devices.requests[0].exactly.deviceClassName: GPUClass "small" may not be used in '
        'the namespace "team-a"; allowed: namespaces with the labels team=b, tier in (gold, blue)'
    ]


def test_a_namespace_with_the_labels_is_taken() -> None:
    expressions = [
        {"key": "team", "operator": "Exists"},
        {"key": "frozen", "operator": "DoesNotExist"},
        {"key": "frozen", "operator": "NotIn", "values": ["yes"]},
    ]
    selector = {"matchLabels": {"team": "a"}, "matchExpressions": expressions}
    assert texts(claim(exactly()), gpu_class(usage={"namespaceSelector": selector})) == []


def test_more_devices_than_a_claim_may_have_are_refused() -> None:
    limited = gpu_class(usage={"maxDevicesPerClaim": 2})
    assert texts(claim(exactly(count=3)), limited) == [
        "spec.devices.requests[0].exactly.count: the claim asks for 3 devices; "
        'allowed: at most 2 devices of GPUClass "small" in one claim'
    ]
    (several,) = texts(claim(exactly(count=2), exactly()), limited)
    assert several.startswith("spec.devices.requests: the claim asks for 3 devices")
    (everything,) = texts(claim(exactly(allocationMode="All")), limited)
    assert everything.startswith("spec.devices.requests[0].exactly.allocationMode: All asks for")


def test_of_alternatives_the_largest_counts_and_administrators_do_not() -> None:
    limited = gpu_class(usage={"maxDevicesPerClaim": 2})
    either = [{"name": str(n), "deviceClassName": "small", "count": n} for n in (2, 1)]
    assert texts(claim({"name": "gpu", "firstAvailable": either}), limited) == []
    assert texts(claim(exactly(allocationMode="All", adminAccess=True)), limited) == []


def test_a_share_above_the_maximum_is_refused() -> None:
    shares = gpu_class(devices=["Share"], share={"memory": {"max": "16Gi"}})
    asked = claim(exactly(capacity={"requests": {"gpu.deckhouse.io/memory": "20Gi"}}))
    assert texts(asked, shares) == [
        "spec.devices.requests[0].exactly.capacity.requests[gpu.deckhouse.io/memory]: 20Gi is "
        'more than a share may have; allowed: at most 16Gi, the maximum of GPUClass "small"'
    ]
    assert texts(claim(exactly(capacity={"requests": {"memory": "16Gi"}})), shares) == []


def test_parameters_of_ours_are_read_strictly_and_those_of_others_are_not() -> None:
    parameters = {
        "apiVersion": "resource.gpu.deckhouse.io/v1alpha1",
        "kind": "GpuConfig",
        "sharing": {"stratgy": "MPS"},
    }
    ours = {"opaque": {"driver": "gpu.deckhouse.io", "parameters": parameters}}
    theirs = {"opaque": {"driver": "other.example", "parameters": {"anything": 1}}}
    (wrong,) = texts(claim(exactly(), config=[theirs, ours]), gpu_class())
    assert wrong.startswith("spec.devices.config[1].opaque.parameters.sharing.stratgy:")


def test_a_share_gets_the_amounts_of_its_class_where_it_names_none() -> None:
    shares = gpu_class(
        devices=["Share"], share={"memory": {"default": "8Gi"}, "cores": {"default": 25}}
    )
    other = {"name": "other", "exactly": {"deviceClassName": "theirs"}}
    asked = claim(other, exactly(capacity={"requests": {"gpu.deckhouse.io/memory": "4Gi"}}))
    assert claims.defaults(asked, "/spec", shares) == [
        {
            "op": "add",
            "path": "/spec/devices/requests/1/exactly/capacity",
            "value": {"requests": {"gpu.deckhouse.io/memory": "4Gi", "cores": "25"}},
        }
    ]
    either = claim({"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": "small"}]})
    (patch,) = claims.defaults(either, "/spec/spec", shares)
    assert patch["path"] == "/spec/spec/devices/requests/0/firstAvailable/0/capacity"
    assert patch["value"] == {"requests": {"memory": "8Gi", "cores": "25"}}


def test_a_class_with_whole_cards_besides_gives_no_amounts() -> None:
    mixed = gpu_class(devices=["Whole", "Share"], share={"memory": {"default": "8Gi"}})
    assert claims.defaults(claim(exactly()), "/spec", mixed) == []
