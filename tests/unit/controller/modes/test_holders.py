# SPDX-License-Identifier: Apache-2.0
"""Which pods hold cards, and by which mode."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support import gpus

from gpudeck.api import labels
from gpudeck.api.core import Pod
from gpudeck.api.resource import ResourceClaim
from gpudeck.controller.modes import holders

DRA, PLUGIN = labels.MODES


def pod(
    *,
    phase: str = "Running",
    claim: str = "",
    made: str = "",
    mapped: str = "nvidia.com/gpu",
    init: bool = False,
    **limits: Any,
) -> Pod:
    container = {"name": "main", "resources": {"limits": limits}}
    spec: dict[str, Any] = {"nodeName": "node-0", "containers": [{"name": "plain"}]}
    spec["initContainers" if init else "containers"] = [container]
    status: dict[str, Any] = {"phase": phase}
    if claim:
        spec["resourceClaims"] = [{"name": "card", "resourceClaimName": claim}]
    if made:
        mapping = {"containerName": "main", "resourceName": mapped, "requestName": "r"}
        status["extendedResourceClaimStatus"] = {
            "resourceClaimName": made,
            "requestMappings": [mapping],
        }
    meta = {"name": "p", "namespace": "t", "uid": "u"}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Pod)


def claims(*results: dict[str, Any]) -> dict[tuple[str, str], ResourceClaim]:
    return {("t", "c"): msgspec.convert(gpus.claim("c", *results, pods=("p",)), ResourceClaim)}


def modes(
    found: Pod, known: dict[tuple[str, str], ResourceClaim] | None = None, *offered: str
) -> list[str]:
    return [each.mode for each in holders.find("node-0", [found], known or {}, offered)]


@pytest.mark.parametrize(
    "resource",
    ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "gpu.deckhouse.io/h100"],
)
def test_a_pod_with_a_resource_of_cards_holds_one(resource: str) -> None:
    assert modes(pod(**{resource: "1"})) == [PLUGIN]
    assert modes(pod(init=True, **{resource: 1})) == [PLUGIN]
    assert modes(pod(**{resource: "0"})) == []


def test_other_things_of_the_maker_are_no_cards_unless_the_plugin_offers_them() -> None:
    assert modes(pod(**{"nvidia.com/hostdev": "1", "cpu": "2"})) == []
    assert modes(pod(**{"nvidia.com/quarter": "1"}), None, "nvidia.com/quarter") == [PLUGIN]


def test_a_pod_that_has_ended_holds_nothing() -> None:
    for phase in ("Succeeded", "Failed"):
        assert modes(pod(phase=phase, **{"nvidia.com/gpu": "1"})) == []
        assert modes(pod(phase=phase, claim="c"), claims(gpus.result())) == []


def test_a_pod_with_a_claim_of_ours_on_the_node_holds_its_devices() -> None:
    assert modes(pod(claim="c"), claims(gpus.result())) == [DRA]
    assert modes(pod(claim="c"), claims()) == []
    assert modes(pod(claim="c"), claims(gpus.result(node="node-1"))) == []
    assert modes(pod(claim="c"), claims(gpus.result(driver="nic.example.com"))) == []
    assert modes(pod(claim="c")) == []


def test_who_only_looks_on_has_to_go_as_well_since_the_kubelet_needs_the_driver_for_it() -> None:
    assert modes(pod(claim="c"), claims(gpus.result(adminAccess=True))) == [DRA]


def test_a_resource_that_the_scheduler_made_a_claim_for_is_held_by_that() -> None:
    found = pod(made="c", **{"nvidia.com/gpu": "1"})
    assert modes(found, claims(gpus.result())) == [DRA]
    assert modes(found, claims(gpus.result(driver="other.example.com"))) == []


def test_a_claim_for_another_resource_hides_no_card_of_the_plugin() -> None:
    """The scheduler makes a claim of those resources alone that the node's plugins do not offer."""
    nic = "nic.example.com/port"
    found = pod(made="c", mapped=nic, **{"nvidia.com/gpu": "1", nic: "1"})
    assert modes(found, claims(gpus.result(driver="nic.example.com"))) == [PLUGIN]


def test_a_pod_that_calls_itself_ours_holds_what_it_has() -> None:
    found = pod(claim="c")
    found.metadata.labels = {labels.COMPONENT: "nvidia-adapter"}
    assert modes(found, claims(gpus.result())) == [DRA]


def test_what_a_pod_is_stands_beside_it() -> None:
    found = pod(**{"nvidia.com/gpu": "1"})
    found.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    found.metadata.annotations = {"kubernetes.io/config.mirror": "x"}
    [held] = holders.find("node-0", [found], {}, ())
    assert (held.is_leaving, held.is_static, held.daemon_set) == (True, True, "")
