# SPDX-License-Identifier: Apache-2.0
"""What a GPUClass says about its users is enforced by the API server, in words, without us."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.lab import Lab, Object, claim, gpu_class, pod

CLASS = "rationed"


@pytest.fixture
def rationed(lab: Lab) -> Iterator[Lab]:
    """A class of shares of 8 GiB, at most 16, two a claim, for namespaces of one team."""
    usage = {
        "namespaceSelector": {
            "matchExpressions": [{"key": "team", "operator": "In", "values": ["ml", "vision"]}]
        },
        "maxDevicesPerClaim": 2,
    }
    share = {"memory": {"default": "8Gi", "max": "16Gi"}, "cores": {"default": 25}}
    spec = {"vendor": "nvidia", "devices": ["Share"], "share": share, "usage": usage}
    lab.apply(
        {**gpu_class(CLASS), "spec": spec},
        {**gpu_class("rationed-cards"), "spec": {"vendor": "nvidia", "usage": usage}},
    )
    lab.kubectl("label", "namespace", "default", "team=ml", "--overwrite")
    lab.eventually("the class is Ready", lambda: ready(lab, "rationed-cards"))
    yield lab
    # What was admitted goes, although the namespace would not be let in any more.
    lab.kubectl("label", "namespace", "default", "team-")
    lab.kubectl("delete", "pods,resourceclaims", "-l", "test=lab", "--wait=true")
    lab.kubectl("delete", "gpuclasses", CLASS, "rationed-cards")


def ready(lab: Lab, name: str) -> bool:
    found = lab.get("gpuclass", name)
    return found is not None and any(
        each["type"] == "Ready" and each["status"] == "True"
        for each in found.get("status", {}).get("conditions", [])
    )


def asking(name: str, memory: str = "", count: int = 1) -> Object:
    """A claim for shares of the class."""
    made = claim(name, CLASS, count)
    if memory:
        exactly = made["spec"]["devices"]["requests"][0]["exactly"]
        exactly["capacity"] = {"requests": {"memory": memory}}
    return made


def refusal(lab: Lab, body: Object) -> str:
    """What the API server says to an object that it must refuse."""
    try:
        lab.apply(body)
    except AssertionError as error:
        return str(error)
    raise AssertionError(f"not refused: {body['metadata']['name']}")


def amounts(lab: Lab, name: str) -> dict[str, Any]:
    """The least amounts that a claim asks for."""
    found = lab.get("resourceclaim", name)
    assert found is not None
    exactly: Object = found["spec"]["devices"]["requests"][0]["exactly"]
    return dict(exactly["capacity"]["requests"])


def test_amounts_of_the_class_are_put_into_claims_that_name_none(rationed: Lab) -> None:
    rationed.apply(asking("plain"), asking("own", memory="10Gi"))
    assert amounts(rationed, "plain") == {"memory": "8Gi", "cores": "25"}
    assert amounts(rationed, "own") == {"memory": "10Gi", "cores": "25"}
    rationed.apply(pod("shares", claims=["plain", "own"], command=("gpu-burn", "-m", "64", "3600")))
    rationed.running("shares")
    held = rationed.get("resourceclaim", "own")
    assert held is not None
    (result,) = held["status"]["allocation"]["devices"]["results"]
    assert result["consumedCapacity"] == {"memory": "10Gi", "cores": "25"}


def test_what_the_class_does_not_allow_is_refused_with_the_field_that_says_so(
    rationed: Lab,
) -> None:
    said = refusal(rationed, asking("large", memory="20Gi"))
    assert "ask for more than 16Gi of memory of GPUClass rationed" in said
    assert "spec.share.memory.max" in said
    said = refusal(rationed, asking("many", count=3))
    assert "ask for 3 devices of GPUClass rationed; at most 2 are allowed" in said
    said = refusal(rationed, pod("greedy", limits={"gpu.deckhouse.io/rationed-cards": 3}))
    assert "the containers ask for 3 of gpu.deckhouse.io/rationed-cards; at most 2" in said
    rationed.kubectl("label", "namespace", "default", "team=sales", "--overwrite")
    said = refusal(rationed, asking("other-team"))
    assert "GPUClass rationed may not be used in namespace default" in said
    said = refusal(rationed, pod("other-team", limits={"gpu.deckhouse.io/rationed-cards": 1}))
    assert "gpu.deckhouse.io/rationed-cards may not be used in namespace default" in said
    rationed.kubectl("label", "namespace", "default", "team=ml", "--overwrite")


def test_pods_without_cards_are_admitted_while_no_process_of_ours_runs(rationed: Lab) -> None:
    rationed.kubectl(
        "scale", "deployment", "gpu-controller", "-n", "gpudeck-system", "--replicas=0"
    )
    try:
        rationed.apply(pod("unrelated", command=("gpu-burn", "3600")))
        assert rationed.get("pod", "unrelated")
        said = refusal(rationed, asking("still-many", count=3))
        assert "at most 2 are allowed" in said
    finally:
        rationed.kubectl(
            "scale", "deployment", "gpu-controller", "-n", "gpudeck-system", "--replicas=1"
        )
        rationed.kubectl(
            "rollout",
            "status",
            "deployment/gpu-controller",
            "-n",
            "gpudeck-system",
            "--timeout=60s",
        )
