# SPDX-License-Identifier: Apache-2.0
"""Pods that ask for shares by resources.limits become pods that ask by claims."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support import gpus

from gpudeck.api.core import PodSpec
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.controller.admission import rewriting

NAME = "gpu.deckhouse.io/quarter"
QUARTER = msgspec.convert(
    gpus.gpu_class(
        "quarter",
        devices=["Share"],
        share={"memory": {"default": "20Gi"}, "cores": {"default": 25}},
    ),
    GPUClass,
)
CLASSES = {NAME: QUARTER}


def container(name: str = "main", count: object = 1, **fields: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {NAME: count, "cpu": "1"}}, **fields}


def applied(pod: dict[str, Any]) -> tuple[dict[str, Any], rewriting.Rewritten]:
    """The pod after the patch, as a JSON patch (RFC 6902) is carried out."""
    done = rewriting.rewrite(msgspec.convert(pod, PodSpec), CLASSES)
    result: dict[str, Any] = {"spec": msgspec.json.decode(msgspec.json.encode(pod))}
    for each in done.patch:
        *path, last = [
            part.replace("~1", "/").replace("~0", "~") for part in each["path"][1:].split("/")
        ]
        target: Any = result
        for part in path:
            target = target[int(part)] if isinstance(target, list) else target[part]
        if each["op"] == "remove":
            del target[last]
        elif last == "-":
            target.append(each["value"])
        else:
            target[last] = each["value"]
    return result["spec"], done


def test_the_resource_becomes_a_claim_with_the_amounts_of_the_class() -> None:
    pod, done = applied({"containers": [container()]})
    (made,) = done.templates
    assert pod == {
        "containers": [
            {"name": "main", "resources": {"limits": {"cpu": "1"}, "claims": [{"name": "gpu-0"}]}}
        ],
        "resourceClaims": [{"name": "gpu-0", "resourceClaimTemplateName": made.name}],
    }
    (request,) = made.body()["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {
        "deviceClassName": "quarter",
        "count": 1,
        "capacity": {"requests": {"memory": "20Gi", "cores": "25"}},
    }
    assert made.name.startswith("quarter-")
    assert made.body()["metadata"]["ownerReferences"][0]["name"] == "quarter"


def test_containers_have_claims_of_their_own_and_what_stood_there_stays() -> None:
    held = {"name": "gpu-0", "resourceClaimName": "mine"}
    first = container("a")
    first["resources"]["claims"] = [{"name": "gpu-0"}]
    first["resources"]["requests"] = {NAME: "1"}
    pod, done = applied({"containers": [first, container("b")], "resourceClaims": [held]})
    assert len(done.templates) == 1
    assert [each["name"] for each in pod["resourceClaims"]] == ["gpu-0", "gpu-1", "gpu-2"]
    assert pod["containers"][0]["resources"] == {
        "limits": {"cpu": "1"},
        "requests": {},
        "claims": [{"name": "gpu-0"}, {"name": "gpu-1"}],
    }
    assert pod["containers"][1]["resources"]["claims"] == [{"name": "gpu-2"}]


def test_an_init_container_leaves_its_share_to_the_next_but_a_sidecar_keeps_it() -> None:
    sidecar = container("side", restartPolicy="Always")
    pod, _ = applied(
        {
            "initContainers": [container("one"), container("two"), sidecar],
            "containers": [container(), container("beside")],
        }
    )
    used = {
        each["name"]: each["resources"]["claims"][0]["name"]
        for each in pod["initContainers"] + pod["containers"]
    }
    assert used == {
        "one": "gpu-0",
        "two": "gpu-0",
        "side": "gpu-0",
        "main": "gpu-1",
        "beside": "gpu-2",
    }


def test_a_pod_that_asks_for_nothing_of_ours_or_for_none_of_it_gets_no_claim() -> None:
    assert rewriting.rewrite(PodSpec(), CLASSES) == rewriting.Rewritten()
    pod, done = applied({"containers": [container(count="0")]})
    assert "resourceClaims" not in pod
    assert done.templates == ()
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "1"}


@pytest.mark.parametrize("count", ["1.5", "-1", "1k", "many", 33, 1.5])
def test_amounts_that_are_no_small_whole_number_are_refused(count: object) -> None:
    pod = msgspec.convert({"containers": [container(count=count)]}, PodSpec)
    (problem,) = rewriting.rewrite(pod, CLASSES).problems
    assert str(problem) == (
        f"spec.containers[0].resources.limits[{NAME}]: {count} is not valid; "
        "allowed: whole numbers up to 32"
    )


def test_a_request_must_have_a_limit_and_be_equal_to_it() -> None:
    unequal = container()
    unequal["resources"]["requests"] = {NAME: 2}
    only: dict[str, Any] = {"name": "b", "resources": {"requests": {NAME: 1}}}
    pod = msgspec.convert({"containers": [unequal, only]}, PodSpec)
    first, second = rewriting.rewrite(pod, CLASSES).problems
    assert "spec.containers[0].resources.limits" in str(first)
    assert "1 differs from the request, 2; allowed: equal amounts" in str(first)
    assert "spec.containers[1].resources.limits" in str(second)
    assert "is missing" in str(second)


def test_other_amounts_make_another_template_and_long_names_are_cut() -> None:
    long = msgspec.convert(gpus.gpu_class("a." * 126 + "b"), GPUClass)
    names = {rewriting.Template(each, count).name for each in (QUARTER, long) for count in (1, 2)}
    assert len(names) == 4
    assert all(len(each) <= 253 for each in names)


def test_a_class_that_was_made_again_has_templates_of_its_own() -> None:
    meta = msgspec.structs.replace(QUARTER.metadata, uid="of-another-one")
    again = msgspec.structs.replace(QUARTER, metadata=meta)
    assert rewriting.Template(again, 1).name != rewriting.Template(QUARTER, 1).name
