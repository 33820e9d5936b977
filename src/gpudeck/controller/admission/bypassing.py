# SPDX-License-Identifier: Apache-2.0
"""What a pod is told that names its node itself, and so passes kube-scheduler by.

Devices are allocated by kube-scheduler alone (Kubernetes 1.37): an extended resource that a node
does not list is left out of account by its kubelet, and a claim without an allocation never
starts. Such pods are valid, and a claim may be allocated already: so these are warnings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpudeck import errors, logs
from gpudeck.api.admission import ResourceClaimTemplate
from gpudeck.api.core import PodResourceClaim, PodSpec
from gpudeck.api.resource import ClaimSpec, ResourceClaim
from gpudeck.api.resources import RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.controller.admission import claims, pods
from gpudeck.kube.client import Client

_INSTEAD = "choose the node by spec.nodeSelector kubernetes.io/hostname instead"
_log = logs.get(__name__)


def by_limits(pod: PodSpec, names: Collection[str]) -> list[str]:
    """Return a warning for each extended resource of ours that the pod would do without."""
    asked = sorted(name for name in names if pod.node_name and pods.asks_for(pod, {name}))
    return [
        f"spec.nodeName: kube-scheduler is passed by, so none of {name} is allocated, and on a "
        f"node in DRA mode the pod runs without a card; {_INSTEAD}"
        for name in asked
    ]


async def by_claims(
    client: Client, pod: PodSpec, namespace: str, classes: Mapping[str, GPUClass]
) -> list[str]:
    """Return a warning for each claim for a class of ours that nobody would allocate."""
    found = []
    for index, each in enumerate((pod.node_name and pod.resource_claims) or ()):
        try:
            spec = await _unallocated(client, each, namespace)
        except errors.GpudeckError as error:
            # A claim may come later, and only a warning is lost.
            _log.debug("Claim not looked at", claim=each.name, error=error)
            continue
        asked = {wish.asked.device_class_name for some in claims.wishes(spec) for wish in some}
        if ours := sorted(asked & classes.keys()):
            found.append(
                "spec.nodeName: kube-scheduler is passed by, so nothing is allocated for "
                f"spec.resourceClaims[{index}] (class {ours[0]}), and the pod will not start; "
                f"{_INSTEAD}"
            )
    return found


async def _unallocated(client: Client, named: PodResourceClaim, namespace: str) -> ClaimSpec:
    """Return what the scheduler would have to allocate; empty for a claim that is allocated."""
    if named.resource_claim_template_name:
        template = await client.get(
            RESOURCE_CLAIM_TEMPLATE,
            named.resource_claim_template_name,
            ResourceClaimTemplate,
            namespace=namespace,
        )
        return (template.spec.spec if template.spec else None) or ClaimSpec()
    claim = await client.get(
        RESOURCE_CLAIM, named.resource_claim_name or "", ResourceClaim, namespace=namespace
    )
    is_allocated = claim.status is not None and claim.status.allocation is not None
    return ClaimSpec() if is_allocated else claim.spec or ClaimSpec()
