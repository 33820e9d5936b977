# SPDX-License-Identifier: Apache-2.0
"""What a container is told of its devices: files of `metadata.resource.k8s.io` (KEP-5304).

Pure. `preparing` describes the devices of a claim when the adapter has prepared them,
`exposing` writes the files. There is one a request: a JSON object in each version, newest
first, of which a reader takes the first that it knows. Content and places in the container
are those of k8s.io/dynamic-resource-allocation v0.37.2 (api/metadata); where the files
lie on the node is nobody's business but ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import attributes, labels, quantities, resource
from gpudeck.api.meta import ObjectMeta, Wire
from gpudeck.dra import offering
from gpudeck.dra.allocations import HeldDevice, Reference
from gpudeck.dra.checkpoint import Given, Metadata
from gpudeck.errors import InvalidError

VERSIONS = ("v1beta1", "v1alpha1")
"""Of the group; a reader of Kubernetes 1.36 knows v1alpha1 alone."""
CONTAINER_FOLDER = "/var/run/kubernetes.io/dra-device-attributes"
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""Annotation of claims that Kubernetes makes of a template."""

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?")
_UID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]{0,63}")


class Device(Wire, omit_defaults=False):
    driver: str
    pool: str
    name: str
    attributes: dict[str, resource.Attribute]


class Request(Wire, omit_defaults=False):
    """One request of the claim; the name of an alternative that was taken follows a slash."""

    name: str
    devices: list[Device]


class DeviceMetadata(Wire):
    """One object of a file."""

    api_version: str
    kind: str
    metadata: ObjectMeta
    requests: list[Request]
    pod_claim_name: str | None = None


def pod_claim_name(claim: resource.ResourceClaim) -> str | None:
    """The name by which its pod knows a claim of a template, None for other claims.

    Raises InvalidError for text that is no name: it becomes a path in the container.
    """
    given = (claim.metadata.annotations or {}).get(POD_CLAIM_NAME)
    if not given:
        return None
    field = f"metadata.annotations[{POD_CLAIM_NAME}]"
    return _checked(given, _LABEL, field, "a DNS label of at most 63 characters")


def check(claim: Reference, devices: Sequence[HeldDevice]) -> None:
    """Raise InvalidError for a claim of whose names no path may be made."""
    _checked(claim.uid, _UID, "metadata.uid", "letters, digits and dashes, at most 64")
    _checked(claim.name, _SUBDOMAIN, "metadata.name", "a DNS subdomain of at most 253 characters")
    for each in devices:
        for request in each.requests:
            field = "status.allocation.devices.results[].request"
            _checked(request, _LABEL, field, "a DNS label of at most 63 characters")


def _checked(text: str, pattern: re.Pattern[str], field: str, allowed: str) -> str:
    if pattern.fullmatch(text) is None:
        raise InvalidError(
            f"{field}: {text[:300]!r} cannot be part of a path; allowed: {allowed}",
            reason="NameInvalid",
            field=field,
            allowed=allowed,
        )
    return text


def describe(
    devices: Sequence[HeldDevice],
    find: Callable[[HeldDevice], adapter_pb2.Card | None],
    given: Mapping[str, Given],
    vendor: str,
) -> dict[str, dict[str, resource.Attribute]]:
    """The attributes of devices by key: as published, with the UUID that containers see.

    `memory` (bytes) and, of a share, `cores` (percent) are what the container may use.
    """
    return {
        each.key: _attributes(each, find(each), given.get(each.key, Given()), vendor)
        for each in devices
    }


def _attributes(
    device: HeldDevice, card: adapter_pb2.Card | None, given: Given, vendor: str
) -> dict[str, resource.Attribute]:
    published = offering.device(card, device.name, vendor) if card is not None else None
    found = dict(published.attributes or {}) if published is not None else {}
    if given.uuid:
        found[attributes.UUID] = resource.Attribute(string=given.uuid)
    memory = device.memory
    if memory is None and device.share_id is None and published is not None:
        capacity = (published.capacity or {}).get(attributes.MEMORY)
        memory = quantities.parse(capacity.value) if capacity is not None else None
    for name, amount in ((attributes.MEMORY, memory), (attributes.CORES, device.cores)):
        if amount is not None:
            found[name] = resource.Attribute(int_=amount)
    return found


def requests(devices: Sequence[HeldDevice]) -> dict[str, list[HeldDevice]]:
    """The devices of each request, in the order of the allocation."""
    found: dict[str, list[HeldDevice]] = {}
    for each in devices:
        for request in each.requests:
            found.setdefault(request, []).append(each)
    return found


def files(claim: Reference, devices: Sequence[HeldDevice], told: Metadata) -> dict[str, bytes]:
    """The content of each request's file, the same for the same input."""
    return {
        request: _stream(claim, told, _request(request, held, told))
        for request, held in requests(devices).items()
    }


def _request(name: str, devices: Sequence[HeldDevice], told: Metadata) -> Request:
    taken = next((each.subrequest for each in devices if each.subrequest), None)
    return Request(
        name=f"{name}/{taken}" if taken else name,
        devices=[
            Device(
                driver=labels.DRIVER,
                pool=each.pool,
                name=each.name,
                attributes=told.attributes.get(each.key, {}),
            )
            for each in devices
        ],
    )


def _stream(claim: Reference, told: Metadata, request: Request) -> bytes:
    objects = [
        DeviceMetadata(
            api_version=f"metadata.resource.k8s.io/{version}",
            kind="DeviceMetadata",
            metadata=ObjectMeta(
                name=claim.name, namespace=claim.namespace, uid=claim.uid, generation=1
            ),
            pod_claim_name=told.pod_claim_name,
            requests=[request],
        )
        for version in VERSIONS
    ]
    return b"".join(msgspec.json.encode(each, order="sorted") + b"\n" for each in objects)


def path_in_container(claim: Reference, request: str, pod_claim: str | None) -> str:
    """Where a container finds the file of a request."""
    place = f"resourceclaimtemplates/{pod_claim}" if pod_claim else f"resourceclaims/{claim.name}"
    return f"{CONTAINER_FOLDER}/{place}/{request}/{labels.DRIVER}-metadata.json"
