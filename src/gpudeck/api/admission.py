# SPDX-License-Identifier: Apache-2.0
"""What the API server asks a webhook and is told (`admission.k8s.io/v1`), and registrations.

Typed as far as gpudeck reads it. `AdmissionRequest.object` stays undecoded: its kind
decides as what it is read.
"""

from __future__ import annotations

import msgspec

from gpudeck.api.core import PodSpec
from gpudeck.api.meta import ObjectMeta, Wire
from gpudeck.api.resource import ClaimSpec

API_VERSION = "admission.k8s.io/v1"
CREATE, UPDATE = "CREATE", "UPDATE"


class GroupVersionResource(Wire):
    group: str = ""
    version: str = ""
    resource: str = ""


class AdmissionRequest(Wire):
    """One question. `namespace` is empty for objects of the cluster."""

    uid: str = ""
    resource: GroupVersionResource = msgspec.field(default_factory=GroupVersionResource)
    namespace: str = ""
    name: str = ""
    operation: str = ""
    dry_run: bool | None = None
    object: msgspec.Raw = msgspec.Raw(b"null")


class Refusal(Wire, omit_defaults=False):
    """The Status that the user gets to read; 403 as for every refusal of admission."""

    message: str
    reason: str = "Forbidden"
    code: int = 403


class AdmissionResponse(Wire):
    """The answer; `patch` is a JSON patch (RFC 6902) in base64."""

    uid: str = ""
    allowed: bool | msgspec.UnsetType = msgspec.UNSET
    status: Refusal | None = None
    patch: bytes | None = None
    patch_type: str | None = None
    warnings: list[str] | None = None


class AdmissionReview(Wire, omit_defaults=False):
    api_version: str = API_VERSION
    kind: str = "AdmissionReview"
    request: AdmissionRequest | None = None
    response: AdmissionResponse | None = None


class ReviewedPod(Wire):
    """A pod that may have no name yet."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class ClaimTemplateSpec(Wire):
    spec: ClaimSpec | None = None


class ResourceClaimTemplate(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ClaimTemplateSpec | None = None


class ServiceReference(Wire):
    namespace: str = ""
    name: str = ""
    path: str | None = None
    port: int | None = None


class ClientConfig(Wire):
    service: ServiceReference | None = None
    ca_bundle: bytes | None = None


class RuleWithOperations(Wire):
    operations: list[str] | None = None
    api_groups: list[str] | None = None
    api_versions: list[str] | None = None
    resources: list[str] | None = None
    scope: str | None = None


class MatchCondition(Wire):
    name: str = ""
    expression: str = ""


class Webhook(Wire):
    """One entry of either kind of configuration; a validating one has no reinvocation policy."""

    name: str = ""
    client_config: ClientConfig | None = None
    rules: list[RuleWithOperations] | None = None
    failure_policy: str | None = None
    match_conditions: list[MatchCondition] | None = None
    reinvocation_policy: str | None = None
    side_effects: str | None = None
    timeout_seconds: int | None = None
    admission_review_versions: list[str] | None = None


class WebhookConfiguration(Wire):
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    webhooks: list[Webhook] | None = None
