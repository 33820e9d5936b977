# SPDX-License-Identifier: Apache-2.0
"""What every Kubernetes object has, typed as far as gpudeck reads it.

Structs are partial: unknown fields are dropped on decoding, so a decoded object
is never written back whole; writes are server-side apply or merge patches.
"""

from __future__ import annotations

import msgspec


class Wire(msgspec.Struct, rename="camel", omit_defaults=True, gc=False, kw_only=True):
    """The root of wire structs: camelCase outside, snake_case inside, unset fields left out."""


class OwnerReference(Wire):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Wire):
    name: str = ""
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Condition(Wire, omit_defaults=False):
    """A `metav1.Condition`; `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: str | msgspec.UnsetType = msgspec.UNSET
    observed_generation: int | msgspec.UnsetType = msgspec.UNSET


class Meta(Wire):
    """An object of which only the metadata is of interest."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class ObjectReference(Wire):
    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
