# SPDX-License-Identifier: Apache-2.0
"""How a pod that asks for a class by `resources.limits` becomes one that asks by a claim. Pure.

kube-scheduler makes the claim of an extended resource itself where it can (Kubernetes
1.36 and later), but a claim without amounts. So a pod that asks for a class of shares
with amounts of its own gets a ResourceClaimTemplate here: one of a namespace serves all
its pods that ask the same. Each container has a claim of its own, as with extended
resources; an init container that has ended by then leaves its share to the next one.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gpudeck.api import attributes, labels, resources
from gpudeck.api.core import Container, PodSpec
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.controller.admission import amounts
from gpudeck.errors import InvalidError

REQUEST = "gpu"
"""Name of the request in the claims made here."""
_DIGITS = 10
_LONGEST_NAME = 253


@dataclasses.dataclass(frozen=True)
class Template:
    """A ResourceClaimTemplate for `count` devices of a class."""

    gpu_class: GPUClass
    count: int

    @property
    def name(self) -> str:
        """The same for the same content, so that pods of a namespace share one.

        A class that was deleted and made again has templates of its own: those of the old one
        are there until the garbage collector takes them away, and a pod must not name them.
        """
        whole = {"class": self.gpu_class.metadata.uid, "spec": self.spec()}
        content = msgspec.json.encode(whole, order="deterministic")
        digest = hashlib.sha256(content).hexdigest()[:_DIGITS]
        stem = self.gpu_class.metadata.name[: _LONGEST_NAME - _DIGITS - 1].rstrip(".-")
        return f"{stem}-{digest}"

    def spec(self) -> dict[str, Any]:
        """The claim's spec; the class's own amounts stand in it."""
        name = self.gpu_class.metadata.name
        exactly: dict[str, Any] = {"deviceClassName": name, "count": self.count}
        amounts = _amounts(self.gpu_class)
        if amounts:
            exactly["capacity"] = {"requests": amounts}
        return {"devices": {"requests": [{"name": REQUEST, "exactly": exactly}]}}

    def body(self) -> dict[str, Any]:
        """The whole object; it goes with its class."""
        meta = self.gpu_class.metadata
        owner = {
            "apiVersion": resources.GPU_CLASS.api_version,
            "kind": resources.GPU_CLASS.kind,
            "name": meta.name,
            "uid": meta.uid,
        }
        return {
            "metadata": {
                "name": self.name,
                "labels": {labels.MANAGED_BY: labels.MANAGED_BY_GPUDECK},
                "ownerReferences": [owner],
            },
            "spec": {"spec": self.spec()},
        }


@dataclasses.dataclass(frozen=True)
class Rewritten:
    """The JSON patch (RFC 6902) of the pod, and the templates that it names then."""

    patch: tuple[dict[str, Any], ...] = ()
    templates: tuple[Template, ...] = ()
    problems: tuple[InvalidError, ...] = ()


@dataclasses.dataclass
class _Claim:
    name: str
    template: Template
    spare: bool
    """Whether all that use it have ended before the next container starts."""


def rewrite(pod: PodSpec, classes: Mapping[str, GPUClass]) -> Rewritten:
    """Return what makes the pod ask by claims; `classes` are by extended resource name."""
    problems: list[InvalidError] = []
    patch: list[dict[str, Any]] = []
    claims: list[_Claim] = []
    taken = {each.name for each in pod.resource_claims or ()}
    for path, container, ends in _containers(pod):
        asked = _asked(path, container, classes, problems)
        used = []
        for name, count in asked.items():
            template = Template(classes[name], count)
            left = (each for each in claims if each.spare and each.template == template)
            claim = next(left, None)
            if claim is None:
                claim = _Claim(_free_name(taken), template, ends)
                claims.append(claim)
            claim.spare = ends
            used.append(claim.name)
        patch += _removals(path, container, classes)
        patch += _additions(
            f"{path}/resources/claims",
            [{"name": each} for each in used],
            is_new=container.resources is None or not container.resources.claims,
        )
    named = [
        {"name": each.name, "resourceClaimTemplateName": each.template.name} for each in claims
    ]
    patch += _additions("/spec/resourceClaims", named, is_new=not pod.resource_claims)
    templates = {each.template.name: each.template for each in claims}
    return Rewritten(tuple(patch), tuple(templates.values()), tuple(problems))


def _containers(pod: PodSpec) -> Iterator[tuple[str, Container, bool]]:
    """Give path, container, and whether it ends before the next one starts."""
    for index, each in enumerate(pod.init_containers or ()):
        yield f"/spec/initContainers/{index}", each, each.restart_policy != "Always"
    for index, each in enumerate(pod.containers or ()):
        yield f"/spec/containers/{index}", each, False


def _asked(
    path: str, container: Container, classes: Mapping[str, GPUClass], problems: list[InvalidError]
) -> dict[str, int]:
    """Return how many of which class the container asks for; what is wrong goes to `problems`.

    The rules are those of the API server for extended resources: a whole number, a limit, and
    a request, if there is one, of the same amount.
    """
    found = {}
    limits = (container.resources.limits if container.resources else None) or {}
    requests = (container.resources.requests if container.resources else None) or {}
    for name in sorted({*limits, *requests} & classes.keys()):
        field = f"{_field(path)}.resources.limits[{name}]"
        given = limits.get(name)
        if given is None:
            problems.append(
                amounts.problem(field, "is missing", "a limit wherever there is a request")
            )
            continue
        count = _whole(given)
        if count is None or count > amounts.MOST_DEVICES:
            allowed = f"whole numbers up to {amounts.MOST_DEVICES}"
            problems.append(amounts.problem(field, f"{given} is not valid", allowed))
        elif name in requests and _whole(requests[name]) != count:
            other = f"differs from the request, {requests[name]}"
            problems.append(amounts.problem(field, f"{given} {other}", "equal amounts"))
        elif count:
            found[name] = count
    return found


def _field(pointer: str) -> str:
    """Return `spec.containers[0]` for `/spec/containers/0`."""
    spec, kind, index = pointer[1:].split("/")
    return f"{spec}.{kind}[{index}]"


def _whole(amount: str | int | float) -> int | None:
    text = str(amount)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


def _free_name(taken: set[str]) -> str:
    name = next(name for number in range(len(taken) + 1) if (name := f"gpu-{number}") not in taken)
    taken.add(name)
    return name


def _removals(
    path: str, container: Container, classes: Mapping[str, GPUClass]
) -> list[dict[str, Any]]:
    resources_ = container.resources
    found = []
    for where in ("limits", "requests"):
        given = (getattr(resources_, where) if resources_ else None) or {}
        for name in sorted(given.keys() & classes.keys()):
            pointer = name.replace("~", "~0").replace("/", "~1")
            found.append({"op": "remove", "path": f"{path}/resources/{where}/{pointer}"})
    return found


def _additions(pointer: str, values: list[dict[str, Any]], *, is_new: bool) -> list[dict[str, Any]]:
    if not values:
        return []
    if is_new:
        return [{"op": "add", "path": pointer, "value": values}]
    return [{"op": "add", "path": f"{pointer}/-", "value": each} for each in values]


def _amounts(gpu_class: GPUClass) -> dict[str, str]:
    share = gpu_class.spec.share if gpuclass.names_amounts(gpu_class.spec) else None
    found = {}
    if share and share.memory and share.memory.default is not None:
        found[attributes.MEMORY] = str(share.memory.default)
    if share and share.cores and share.cores.default is not None:
        found[attributes.CORES] = str(share.cores.default)
    return found
