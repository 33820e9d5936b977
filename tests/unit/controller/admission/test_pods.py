# SPDX-License-Identifier: Apache-2.0
"""Pods that ask by resources.limits for more than any node has."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.support import gpus
from tests.unit.controller.admission.test_fleet import card, fleet

from gpudeck.api.core import PodSpec
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.controller.admission import pods

NAME = "nvidia.com/gpu"
CLASSES = {NAME: msgspec.convert(gpus.gpu_class("gpu"), GPUClass)}
FLEET = fleet(card("a", 1), card("a", 2), card("b", 1))


def container(count: object, **fields: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"limits": {NAME: count}}, **fields}


def refused(pod: dict[str, Any]) -> list[str]:
    return [str(each) for each in pods.impossible(msgspec.convert(pod, PodSpec), CLASSES, FLEET)]


def test_amounts_of_the_containers_add_up() -> None:
    assert refused({"containers": [container(1), container("1")]}) == []
    (said,) = refused({"containers": [container(1), container(2)]})
    assert said.startswith("spec.containers[*].resources.limits[nvidia.com/gpu]: 3 devices")
    assert said.endswith("the largest gives 2")


def test_an_init_container_counts_by_itself_and_a_sidecar_with_the_others() -> None:
    first, beside = container(2), container(2, restartPolicy="Always")
    assert refused({"initContainers": [first], "containers": [container(2)]}) == []
    assert len(refused({"initContainers": [beside], "containers": [container(1)]})) == 1
    assert len(refused({"initContainers": [container(3)], "containers": []})) == 1


def test_amounts_that_are_no_number_are_for_the_api_server_to_refuse() -> None:
    assert refused({"containers": [container("lots")]}) == []


def test_more_shares_than_one_claim_can_have_are_refused_whatever_cards_there_are() -> None:
    shared = {NAME: msgspec.convert(gpus.gpu_class("shared", devices=["Share"]), GPUClass)}

    def said(count: int) -> list[str]:
        pod = msgspec.convert({"containers": [container(count)]}, PodSpec)
        return [str(each) for each in pods.impossible(pod, shared, FLEET)]

    assert said(32) == []
    assert said(33) == [
        f"spec.containers[*].resources.limits[{NAME}]: 33 is not valid; allowed: at most 32 "
        "devices in one claim"
    ]
