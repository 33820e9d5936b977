# SPDX-License-Identifier: Apache-2.0
"""Pods that ask for shares by resources.limits, and requests that can never be served."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.lab.test_usage import ready, refusal
from tests.support.lab import NAMESPACE, Lab, claim, gpu_class, pod

QUARTER = "gpu.deckhouse.io/quarter"
SLEEP = ("gpu-burn", "-m", "64", "36000")


@pytest.fixture
def quarters(lab: Lab) -> Iterator[Lab]:
    """A class of shares with amounts of its own, registered with the API server."""
    share = {"memory": {"default": "8Gi", "max": "16Gi"}, "cores": {"default": 25}}
    usage = {"namespaceSelector": {"matchLabels": {"quarters": "yes"}}}
    spec = {"vendor": "nvidia", "devices": ["Share"], "share": share, "usage": usage}
    lab.apply({**gpu_class("quarter"), "spec": spec})
    lab.kubectl("label", "namespace", "default", "quarters=yes", "--overwrite")
    lab.eventually("the class is Ready", lambda: ready(lab, "quarter"))
    lab.eventually("its pods are rewritten", lambda: QUARTER in registered(lab))
    yield lab
    lab.kubectl("delete", "pods", "-l", "test=lab", "--wait=true", "--ignore-not-found")
    lab.kubectl("label", "namespace", "default", "quarters-")
    lab.kubectl("delete", "gpuclass", "quarter")
    lab.eventually("nothing is registered for pods", lambda: QUARTER not in registered(lab))


def registered(lab: Lab) -> str:
    return lab.kubectl("get", "mutatingwebhookconfiguration", "gpudeck", "-o", "yaml")


def test_pods_that_ask_for_a_share_by_its_resource_get_the_amounts_of_the_class(
    quarters: Lab,
) -> None:
    names = ("one", "two")
    quarters.apply(*(pod(name, limits={QUARTER: 1}, command=SLEEP) for name in names))
    quarters.running(*names)
    (template,) = quarters.list("resourceclaimtemplates")
    held = [each for each in quarters.list("resourceclaims") if each["status"].get("allocation")]
    assert len(held) == 2
    for each in held:
        (result,) = each["status"]["allocation"]["devices"]["results"]
        assert result["consumedCapacity"] == {"memory": "8Gi", "cores": "25"}
    assert all(len(quarters.cards_inside(name)) == 1 for name in names)
    assert template["metadata"]["ownerReferences"][0]["name"] == "quarter"


def test_a_rewritten_pod_is_refused_where_the_class_may_not_be_used(quarters: Lab) -> None:
    quarters.apply(pod("early", limits={QUARTER: 1}, command=SLEEP))
    quarters.kubectl("label", "namespace", "default", "quarters=no", "--overwrite")
    said = refusal(quarters, pod("late", limits={QUARTER: 1}, command=SLEEP))
    assert (
        "GPUClass quarter may not be used in namespace default: the labels of the namespace do "
        "not fit spec.usage.namespaceSelector of the class"
    ) in said
    assert "resourceclaimtemplates" not in said


def test_what_no_card_can_serve_is_refused_when_it_is_made(lab: Lab) -> None:
    said = refusal(lab, pod("nine", limits={"nvidia.com/gpu": 9}))
    assert "9 devices of GPUClass gpu are more than any node could give" in said
    assert "the largest gives 8" in said
    config = {
        "apiVersion": "resource.gpu.deckhouse.io/v1alpha1",
        "kind": "GpuConfig",
        "sharing": {"strategy": "Slicing"},
    }
    odd = claim("odd")
    odd["spec"]["devices"]["config"] = [
        {"opaque": {"driver": "gpu.deckhouse.io", "parameters": config}}
    ]
    said = refusal(lab, odd)
    assert (
        'spec.devices.config[0].opaque.parameters.sharing.strategy: "Slicing" is not valid; '
        "allowed: TimeSlicing or MPS"
    ) in said
    silly = claim("silly")
    silly["spec"]["devices"]["requests"][0]["exactly"]["capacity"] = {"requests": {"cores": "150"}}
    said = refusal(lab, silly)
    assert (
        "spec.devices.requests[0].exactly.capacity.requests[cores]: 150 is not valid; "
        "allowed: 1 to 100, the percentage of the card's multiprocessors"
    ) in said


def test_a_pod_that_names_its_node_gets_no_card_and_is_told_so(lab: Lab) -> None:
    node = next(iter(lab.gpus().values()))["status"]["nodeInfo"]["nodeName"]
    lab.apply(claim("unseen"))
    for body, effect in (
        (pod("bare", limits={"nvidia.com/gpu": 1}, command=SLEEP, nodeName=node), "without a card"),
        (pod("stuck", claims=["unseen"], command=SLEEP, nodeName=node), "will not start"),
    ):
        words = ("create", "-f", "-", "--dry-run=server", "--warnings-as-errors")
        said = lab.kubectl(*words, stdin=json.dumps(body), check=False)
        assert "kube-scheduler is passed by" in said
        assert effect in said
        lab.apply(body)
    where = ("--kubeconfig", lab.kubeconfig)
    said = lab.gpudeck("explain", "pod", "bare", *where)
    assert "it does without 1 card by nvidia.com/gpu, and it holds no card" in said
    said = lab.gpudeck("explain", "pod", "stuck", *where)
    assert f"was not put on node {node} by kube-scheduler" in said
    assert "it cannot start: nothing is allocated for 1 card of class gpu" in said


def test_a_class_that_misses_a_card_by_a_little_is_made_with_a_warning(lab: Lab) -> None:
    body = gpu_class("near", memory={"min": "80Gi"})
    words = ("apply", "-f", "-", "--warnings-as-errors")
    said = lab.kubectl(*words, stdin=json.dumps(body), check=False)
    lab.delete("gpuclass", "near")
    assert "80Gi is more than NVIDIA H100 80GB HBM3 has, 79.6 GiB" in said


def test_a_new_certificate_is_taken_up_without_a_restart(quarters: Lab) -> None:
    def certificate() -> str:
        found = quarters.get("secret", "gpu-controller-webhook", NAMESPACE)
        data = found.get("data", {}) if found else {}  # None at all while it is written anew.
        return str(data.get("tls.crt", ""))

    def restarts() -> list[int]:
        chosen = ("-n", NAMESPACE, "-l", "app.kubernetes.io/component=gpu-controller")
        return [
            each["restartCount"]
            for found in quarters.list("pods", *chosen)
            for each in found["status"]["containerStatuses"]
        ]

    before, started = certificate(), restarts()
    patch = '{"data": {"tls.crt": null, "tls.key": null, "ca.crt": null, "ca.key": null}}'
    quarters.kubectl(
        "patch", "secret", "gpu-controller-webhook", "-n", NAMESPACE, "--type=merge", "-p", patch
    )
    quarters.eventually("another certificate", lambda: certificate() not in ("", before))
    nine = json.dumps(pod("nine", limits={"nvidia.com/gpu": 9}))

    def judged() -> bool:
        said = quarters.kubectl("create", "--dry-run=server", "-f", "-", stdin=nine, check=False)
        return "more than any node" in said

    quarters.eventually("the API server trusts it", judged)
    quarters.apply(pod("after", limits={QUARTER: 1}, command=SLEEP))
    quarters.running("after")
    assert restarts() == started


def test_what_was_deleted_comes_back_with_an_upgrade(quarters: Lab) -> None:
    deleted = (
        "mutatingwebhookconfiguration/gpudeck",
        "validatingwebhookconfiguration/gpudeck",
        "validatingadmissionpolicy/gpudeck-node-events",
        "validatingadmissionpolicybinding/gpudeck-node-events",
    )
    quarters.kubectl("delete", *deleted)
    quarters.lab("install")
    quarters.kubectl("get", *deleted)
    quarters.eventually("pods are rewritten", lambda: QUARTER in registered(quarters), seconds=5)
    quarters.apply(pod("again", limits={QUARTER: 1}, command=SLEEP))
    quarters.running("again")
