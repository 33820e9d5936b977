# SPDX-License-Identifier: Apache-2.0
"""Where each kind of object lives in the API: group, version, plural."""

from __future__ import annotations

import msgspec


class Resource(msgspec.Struct, frozen=True):
    """One resource of the API server. `kind` is what manifests carry; `plural` stands in paths."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = False

    @property
    def api_version(self) -> str:
        """`v1` for the core group, else `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """The URL path of the collection or, with a name, of the object."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace:
            root += f"/namespaces/{namespace}"
        return f"{root}/{self.plural}" + (f"/{name}" if name else "")


NODE = Resource("", "v1", "Node", "nodes")
POD = Resource("", "v1", "Pod", "pods", namespaced=True)
CONFIG_MAP = Resource("", "v1", "ConfigMap", "configmaps", namespaced=True)
DAEMON_SET = Resource("apps", "v1", "DaemonSet", "daemonsets", namespaced=True)
DEPLOYMENT = Resource("apps", "v1", "Deployment", "deployments", namespaced=True)
ROLE = Resource("rbac.authorization.k8s.io", "v1", "Role", "roles", namespaced=True)
NAMESPACE = Resource("", "v1", "Namespace", "namespaces")
LEASE = Resource("coordination.k8s.io", "v1", "Lease", "leases", namespaced=True)
EVENT = Resource("", "v1", "Event", "events", namespaced=True)
NODE_GROUP = Resource("deckhouse.io", "v1", "NodeGroup", "nodegroups")
"""Of Deckhouse; not every cluster has it."""
DEVICE_CLASS = Resource("resource.k8s.io", "v1", "DeviceClass", "deviceclasses")
RESOURCE_CLAIM = Resource(
    "resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", namespaced=True
)
RESOURCE_CLAIM_TEMPLATE = Resource(
    "resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", namespaced=True
)
DEVICE_TAINT_RULE = Resource("resource.k8s.io", "v1", "DeviceTaintRule", "devicetaintrules")
DEVICE_TAINT_RULES = (
    DEVICE_TAINT_RULE,
    msgspec.structs.replace(DEVICE_TAINT_RULE, version="v1beta2"),
)
"""Best first: v1 is of Kubernetes 1.37, v1beta2 of 1.36; before there is none."""
RESOURCE_SLICE = Resource("resource.k8s.io", "v1", "ResourceSlice", "resourceslices")
CUSTOM_RESOURCE_DEFINITION = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"
)
SECRET = Resource("", "v1", "Secret", "secrets", namespaced=True)
MUTATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
)
VALIDATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
)
PHYSICAL_GPU = Resource("gpu.deckhouse.io", "v1alpha1", "PhysicalGPU", "physicalgpus")
GPU_CLASS = Resource("gpu.deckhouse.io", "v1alpha1", "GPUClass", "gpuclasses")
NODE_FEATURE = Resource(
    "nfd.k8s-sigs.io", "v1alpha1", "NodeFeature", "nodefeatures", namespaced=True
)
NODE_FEATURE_RULE = Resource("nfd.k8s-sigs.io", "v1alpha1", "NodeFeatureRule", "nodefeaturerules")
NODE_FEATURE_GROUP = Resource(
    "nfd.k8s-sigs.io", "v1alpha1", "NodeFeatureGroup", "nodefeaturegroups", namespaced=True
)
