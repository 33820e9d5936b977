# SPDX-License-Identifier: Apache-2.0
"""What every Kubernetes object has, typed as far as gpudeck reads it.

Structs are partial: unknown fields are dropped on decoding, so a decoded object
is never written back whole; writes are server-side apply or merge patches.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gpudeck.api.schema import doc


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


def version_of(meta: ObjectMeta) -> int:
    """The resource version as a number; servers of 1.35 and later promise that it is one."""
    text = meta.resource_version or ""
    return int(text) if text.isdigit() else 0


class Condition(Wire, omit_defaults=False):
    """A `metav1.Condition`; `status` is True, False or Unknown."""

    type: Annotated[str, doc("What the condition is about, in CamelCase.", maxLength=316)]
    status: Annotated[str, doc("True, False or Unknown.", enum=["True", "False", "Unknown"])]
    reason: Annotated[
        str,
        doc(
            "Why, as one word in CamelCase for programs.",
            maxLength=1024,
            pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        ),
    ]
    message: Annotated[str, doc("Why, as a sentence for people.", maxLength=32768)] = ""
    last_transition_time: Annotated[
        str | msgspec.UnsetType, doc("When the status last changed.", format="date-time")
    ] = msgspec.UNSET
    observed_generation: Annotated[
        int | msgspec.UnsetType,
        doc("The generation of the object that the condition speaks of.", minimum=0),
    ] = msgspec.UNSET


Conditions = Annotated[
    list[Condition] | None,
    doc(
        "What holds and what does not, one entry a type.",
        x_list_type="map",
        x_list_map_keys=["type"],
        maxItems=16,
    ),
]


class Meta(Wire):
    """An object of which only the metadata is of interest."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class ObjectReference(Wire):
    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
