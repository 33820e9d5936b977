# SPDX-License-Identifier: Apache-2.0
"""The real API server takes the definitions, the classes people write, and the chart's objects."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.chart import rendering
from tests.support import gpus

from gpudeck import errors
from gpudeck.api import resources
from gpudeck.api.resources import GPU_CLASS, PHYSICAL_GPU, Resource
from gpudeck.kube import client

pytestmark = pytest.mark.asyncio


def spec(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "tried"}, "spec": fields}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (spec(requirements={"memory": {"min": "80Gi", "max": "40G"}}), "min must not be above max"),
        (spec(requirements={"memory": {"min": "40GB"}}), "spec.requirements.memory.min"),
        (spec(requirements={"memory": {"min": -1}}), "spec.requirements.memory.min"),
        (spec(requirements={"memory": {"max": "0"}}), "max must be above 0"),
        (spec(devices=["Share"], share={"memory": {"default": "-1Gi"}}), "share.memory.default"),
        (spec(devices=["Share"], share={"memory": {"default": "0"}}), "at least 1Mi"),
        (spec(devices=["Share"], share={"memory": {"default": 8}}), "share.memory.default"),
        (spec(devices=["Share"], share={"memory": {"max": "0Gi"}}), "share.memory.max"),
        (spec(devices=["Share"], share={"cores": {"default": 0}}), "share.cores.default"),
        (spec(devices=["Share"], share={"cores": {"default": 101}}), "share.cores.default"),
        (spec(usage={"maxDevicesPerClaim": 0}), "usage.maxDevicesPerClaim"),
        (spec(usage={"maxDevicesPerClaim": 33}), "usage.maxDevicesPerClaim"),
        (spec(requirements={"driverVersion": {"min": 550}}), "driverVersion.min"),
        (spec(requirements={"driverVersion": {"min": "new"}}), "driverVersion.min"),
        (spec(requirements={"products": []}), "products"),
        (spec(devices=["Passthrough"]), '"Whole"'),
        (spec(devices=["Whole", "Whole"]), "spec.devices"),
        (spec(vendor="NVIDIA"), "spec.vendor"),
        (spec(extendedResourceName="gpu"), "spec.extendedResourceName"),
        (spec(extendedResourceName="x.kubernetes.io/gpu"), "reserved"),
        (spec(extendedResourceName="a.example.com/" + "x" * 64), "at most 63 characters"),
        (spec(requirements={"driverVersion": {"min": "551", "max": "550"}}), "above max"),
        (spec(requirements={"computeCapability": {"min": "9.1", "max": "9.0"}}), "above max"),
        (spec(partition={}), "spec.partition"),
        (spec(devices=["Partition"], share={}), "spec.share"),
        (spec(devices=["Partition"], partition={"profiles": ["1g"]}), "profiles[0]"),
        (spec(devices=["Partition"], partition={"profiles": ["1g.5gb"] * 2}), "profiles[1]"),
        (spec(devices=["Share"], share={"strategy": "Mps"}), '"MPS"'),
        (
            spec(devices=["Share"], share={"strategy": "MPS", "interval": "Short"}),
            "only for the strategy TimeSlicing",
        ),
        (
            spec(
                usage={
                    "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In"}]}
                }
            ),
            "operators In and NotIn need values",
        ),
        ({"metadata": {"name": "x" * 64}, "spec": {}}, "needs spec.extendedResourceName"),
        ({"metadata": {"name": "tried"}}, "spec"),
    ],
)
async def test_a_class_that_cannot_be_is_refused_with_its_field(
    connection: client.Client, body: dict[str, Any], words: str
) -> None:
    with pytest.raises(errors.InvalidError) as caught:
        await connection.create(GPU_CLASS, body, dict)
    assert words in caught.value.message


@pytest.mark.parametrize(
    "fields",
    [
        {"requirements": {"driverVersion": {"min": "550.163.1", "max": "550"}}},
        {"requirements": {"computeCapability": {"min": "8", "max": "8.0"}}},
        {"devices": ["Whole", "Partition", "Share"], "partition": {}, "share": {}},
        {"devices": ["Share"], "share": {"memory": {"default": "10Gi", "max": "40G"}}},
        {"devices": ["Share"], "share": {}, "extendedResourceName": "a.example.com/shared"},
        # The webhook puts the amounts into the claims of pods that ask by the name.
        {
            "devices": ["Share"],
            "share": {"cores": {"default": 20}},
            "extendedResourceName": "a.example.com/x",
        },
        {"usage": {"namespaceSelector": {"matchLabels": {"team": "a"}}}},
    ],
)
async def test_a_class_that_can_be_is_taken(
    connection: client.Client, fields: dict[str, Any]
) -> None:
    body = {"metadata": {"name": "taken"}, "spec": fields}
    made = await connection.create(GPU_CLASS, body, dict)
    await connection.delete(GPU_CLASS, "taken")
    assert fields.items() <= made["spec"].items() or "share" in fields


@pytest.mark.parametrize(
    "name",
    [
        "",
        "nvidia.com/gpu.shared",
        "nvidia.com/" + "x" * 63,
        "nvidia.com/" + "x" * 64,
        "gpu",
        "nvidia..com/gpu",
        "nvidia.-com/gpu",
        "nvidia.com/gpu/two",
        "nvidia.com/-gpu",
        "nvidia.com/",
        "nvidia.com/GPU",
        "NVIDIA.com/gpu",
        "kubernetes.io/gpu",
        "akubernetes.io/gpu",
        "node.kubernetes.io/gpu",
        "requests.nvidia.com/gpu",
        "a" * 250 + "/gpu",
    ],
)
async def test_the_values_of_the_chart_refuse_the_resource_names_that_the_server_refuses(
    connection: client.Client, name: str
) -> None:
    schema = json.loads((rendering.CHART / "values.schema.json").read_text(encoding="utf-8"))
    known = schema["properties"]["gpuClass"]["properties"]["extendedResourceName"]
    fits = (
        len(name) <= known["maxLength"]
        and re.search(known["pattern"], name) is not None
        and not any(re.search(each["pattern"], name) for each in known["not"]["anyOf"])
    )
    body = {"metadata": {"name": "named"}, "spec": {"extendedResourceName": name}}
    try:
        await connection.create(GPU_CLASS, body, dict)
    except errors.InvalidError:
        assert not fits
    else:
        await connection.delete(GPU_CLASS, "named")
        assert fits


async def test_a_class_without_devices_gets_whole_cards(connection: client.Client) -> None:
    body = {"metadata": {"name": "defaulted"}, "spec": {}}
    made = await connection.create(GPU_CLASS, body, dict)
    assert made["spec"]["devices"] == ["Whole"]


async def test_everything_that_is_known_of_a_card_is_kept(connection: client.Client) -> None:
    holder = {
        "namespace": "t",
        "name": "c",
        "uid": "u",
        "device": "gpu-0000-1b-00-0",
        "shareID": "",
        "pods": ["p"],
    }
    body = gpus.gpu(
        phase="InUse",
        lostSince=gpus.SINCE,
        occupancy={"state": "Full", "memoryMiB": {"total": 2, "used": 1}, "claims": [holder]},
    )
    del body["metadata"]["uid"]
    status = body.pop("status")
    name = body["metadata"]["name"]
    await connection.create(PHYSICAL_GPU, body, dict)
    patched = await connection.merge_patch(
        PHYSICAL_GPU, name, {"status": status}, dict, subresource="status"
    )
    assert patched["status"] == status


def chart_objects() -> list[dict[str, Any]]:
    """The chart's objects but for privileged ones, which this server admits to nobody."""
    found = []
    for each in rendering.golden("dra"):
        pod = each.get("spec", {}).get("template", {}).get("spec", {})
        rights = [part.get("securityContext", {}) for part in pod.get("containers", [])]
        if not any(each.get("privileged") for each in rights):
            found.append(each)
    return found


@pytest.mark.parametrize("body", chart_objects(), ids=lambda each: each["metadata"]["name"])
async def test_the_objects_of_the_chart_are_taken_without_a_warning(
    connection: client.Client, body: dict[str, Any]
) -> None:
    group, _, version = body["apiVersion"].rpartition("/")
    kind, meta = body["kind"], body["metadata"]
    plural = f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"
    if plural.endswith("ys"):
        plural = plural.removesuffix("ys") + "ies"
    resource = Resource(group, version, kind, plural, namespaced="namespace" in meta)
    if resource.namespaced:
        await _namespace(connection, meta["namespace"])
    path = resource.path(meta.get("namespace"))
    content = client.complete(resource, body)
    strict = {"dryRun": "All", "fieldValidation": "Strict"}
    await connection.raw("POST", path, body=content, query=strict)


async def _namespace(connection: client.Client, name: str) -> None:
    body = {"metadata": {"name": name}}
    await connection.apply(resources.NAMESPACE, body, dict, manager="test")
