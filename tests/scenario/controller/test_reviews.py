# SPDX-License-Identifier: Apache-2.0
"""What a replica answers about pods that must be rewritten, and the templates that it makes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support import apistore, gpus
from tests.support.apiserver import ApiServer

from gpudeck import errors
from gpudeck.api.admission import AdmissionRequest, GroupVersionResource
from gpudeck.api.core import Node
from gpudeck.api.resources import RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.controller.admission import naming, reviews
from gpudeck.controller.admission.fleet import Fleet
from gpudeck.kube.client import Client
from gpudeck.kube.webhooks import Answer

pytestmark = pytest.mark.asyncio

NAME = "gpu.deckhouse.io/h100"
H100 = msgspec.convert(gpus.gpu_class("h100"), GPUClass)
H100.metadata.uid = "of-the-class"
NOTHING = naming.Names({}, {}, {})
REWRITTEN = naming.Names({"h100": H100}, {NAME: H100}, {NAME: H100})
SERVED = naming.Names({"h100": H100}, {NAME: H100}, {})
"""By the scheduler."""


def replica(client: Client, names: naming.Names, *, refuse: bool = True) -> reviews.Reviews:
    """One of a cluster with one card."""
    fleet = Fleet()
    fleet.change(None, msgspec.convert(gpus.gpu(), PhysicalGPU))
    return reviews.Reviews(client, lambda: names, fleet, refuse_impossible=refuse)


def asks(count: int = 1, **spec: Any) -> AdmissionRequest:
    part: dict[str, Any] = {"name": "main", "resources": {"limits": {NAME: str(count)}}}
    return of_pod({"containers": [part], **spec})


def of_pod(spec: dict[str, Any]) -> AdmissionRequest:
    pod = {"metadata": {}, "spec": spec}
    return AdmissionRequest(namespace="t", object=msgspec.Raw(msgspec.json.encode(pod)))


def claim(name: str, class_name: str, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "t"},
        "spec": {
            "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": class_name}}]}
        },
        "status": status,
    }


async def test_a_pod_whose_class_is_not_known_here_yet_is_not_let_in_as_it_is() -> None:
    async with ApiServer() as server, server.client() as client:
        with pytest.raises(errors.UnavailableError, match="not known here yet"):
            await replica(client, NOTHING).rewrite(asks())
        assert not (await replica(client, SERVED).rewrite(asks())).problems


async def test_pods_that_ask_the_same_have_one_template() -> None:
    async with ApiServer() as server, server.client() as client:
        for _ in range(2):
            assert (await replica(client, REWRITTEN).rewrite(asks())).patch
        assert len(server.objects(RESOURCE_CLAIM_TEMPLATE)) == 1


async def test_a_pod_that_no_node_could_serve_is_judged_before_a_template_is_made() -> None:
    async with ApiServer() as server, server.client() as client:
        (refused,) = (await replica(client, REWRITTEN).rewrite(asks(2))).problems
        assert f"spec.containers[*].resources.limits[{NAME}]: 2 devices" in str(refused)
        assert not server.objects(RESOURCE_CLAIM_TEMPLATE)
        (warning,) = (await replica(client, REWRITTEN, refuse=False).rewrite(asks(2))).warnings
        assert "more than any node could give" in warning
        assert len(server.objects(RESOURCE_CLAIM_TEMPLATE)) == 1


@pytest.mark.parametrize(
    "before",
    [
        'resourceclaimtemplates.resource.k8s.io "h100-1" is forbidden: ValidatingAdmissionPolicy '
        "'gpudeck-usage-claims' with binding 'gpudeck-usage-claims' denied request: ",
        'admission webhook "claims.gpu.deckhouse.io" denied the request: ',
    ],
    ids=["a policy", "a webhook"],
)
async def test_who_is_refused_a_template_reads_the_sentence_alone(
    monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    def refuse(*_: Any) -> dict[str, Any]:
        raise apistore.RefusedError(403, "Forbidden", f"{before}no more for this namespace")

    async with ApiServer() as server, server.client() as client:
        monkeypatch.setattr(server.store, "create", refuse)
        (refused,) = (await replica(client, REWRITTEN).rewrite(asks())).problems
        assert str(refused) == "no more for this namespace"


async def test_a_pod_that_names_its_node_is_told_that_limits_give_it_no_card() -> None:
    async with ApiServer() as server, server.client() as client:
        asked = replica(client, SERVED)
        assert not (await asked.judge_pod(asks())).warnings
        said = await asked.judge_pod(asks(nodeName="node-0"))
        assert not said.problems
        (warning,) = said.warnings
        assert warning.startswith("spec.nodeName: kube-scheduler is passed by, so none of ")
        assert f"{NAME} is allocated, and on a node in DRA mode" in warning
        assert len(warning) <= 240


async def test_what_a_device_plugin_may_offer_is_for_the_plugin_to_judge() -> None:
    """Its config may make many devices of a card, and its nodes need no scheduler for them."""
    plugin = {"metadata": {"labels": {"gpu.deckhouse.io/active-mode": "device-plugin"}}}
    names = naming.Names({"gpu": H100}, {"nvidia.com/gpu": H100, NAME: H100}, {})
    part = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "9"}}}
    asked = of_pod({"containers": [part], "nodeName": "node-1"})
    async with ApiServer() as server, server.client() as client:
        fleet = Fleet()
        fleet.change(None, msgspec.convert(gpus.gpu(), PhysicalGPU))
        pages = reviews.Reviews(client, lambda: names, fleet, refuse_impossible=True)
        assert (await pages.judge_pod(asked)).problems
        fleet.node_changed("node-1", msgspec.convert(plugin, Node))
        assert await pages.judge_pod(asked) == Answer()
        assert (await pages.judge_pod(asks(9))).problems, "a name that only DRA serves"
        fleet.node_changed("node-1", None)
        assert (await pages.judge_pod(asked)).problems


async def test_a_pod_that_names_its_node_is_told_that_its_claims_will_not_be_allocated() -> None:
    async with ApiServer() as server, server.client() as client:
        made = claim("unallocated", "h100")
        server.put(RESOURCE_CLAIM, made)
        server.put(RESOURCE_CLAIM, claim("allocated", "h100", allocation={"devices": {}}))
        server.put(RESOURCE_CLAIM, claim("foreign", "fpga"))
        template = {
            "metadata": {"name": "of-pods", "namespace": "t"},
            "spec": {"spec": made["spec"]},
        }
        server.put(RESOURCE_CLAIM_TEMPLATE, template)
        named = [
            {"name": name, "resourceClaimName": name}
            for name in ("unallocated", "allocated", "foreign", "missing")
        ]
        named.append({"name": "templated", "resourceClaimTemplateName": "of-pods"})
        spec = {"containers": [{"name": "main"}], "resourceClaims": named}
        asked = replica(client, SERVED)
        assert not (await asked.judge_pod(of_pod(spec))).warnings
        warnings = (await asked.judge_pod(of_pod({**spec, "nodeName": "node-0"}))).warnings
        assert [each.partition(", so ")[2].partition(",")[0] for each in warnings] == [
            "nothing is allocated for spec.resourceClaims[0] (class h100)",
            "nothing is allocated for spec.resourceClaims[4] (class h100)",
        ]
        assert all(len(each) <= 240 for each in warnings)


async def test_an_amount_that_means_nothing_is_refused_where_the_impossible_is_not() -> None:
    spec = claim("silly", "h100")["spec"]
    spec["devices"]["requests"][0]["exactly"]["capacity"] = {"requests": {"memory": "-1Gi"}}
    body = msgspec.json.encode({"metadata": {}, "spec": spec})
    resource = GroupVersionResource(resource=RESOURCE_CLAIM.plural)
    asked = AdmissionRequest(resource=resource, object=msgspec.Raw(body))
    async with ApiServer() as server, server.client() as client:
        (refused,) = (await replica(client, SERVED, refuse=False).judge_claim(asked)).problems
    field = "spec.devices.requests[0].exactly.capacity.requests[memory]"
    assert str(refused) == f"{field}: -1Gi is not valid; allowed: at least 1Mi, such as 8Gi"


async def test_claims_that_cannot_be_looked_at_hold_up_no_pod() -> None:
    async with ApiServer() as server, server.client() as client:
        server.fail(1, 403, path="resourceclaims", reason="Forbidden")
        named = [{"name": "c", "resourceClaimName": "c"}]
        spec = {"containers": [], "resourceClaims": named, "nodeName": "node-0"}
        assert await replica(client, SERVED).judge_pod(of_pod(spec)) == Answer()
