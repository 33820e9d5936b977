# SPDX-License-Identifier: Apache-2.0
"""What the claim of a ResourceClaim or a template may ask of GPUClasses, and its default amounts.

Pure. Every refusal names the field, the value and what is allowed; all that is wrong is
told at once. Requests of other drivers' classes are not looked at, and administrative
access is not counted: it takes no device from anybody.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from gpudeck.api import attributes, deviceconfigs, labels, quantities, selectors
from gpudeck.api.resource import CapacityRequirements, ClaimSpec, ExactRequest, SubRequest
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.controller.admission import usage
from gpudeck.errors import InvalidError

ALL = "All"
"""The allocation mode that takes every device that matches."""


@dataclasses.dataclass(frozen=True)
class Namespace:
    """Where a claim stands."""

    name: str
    labels: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Wish:
    """One request or one alternative of a request, with its place in the claim."""

    path: str
    """Of the request in the claim's spec, e.g. devices.requests[0].exactly."""
    entry: int
    """Which request of the claim it belongs to."""
    asked: ExactRequest | SubRequest

    @property
    def is_admin(self) -> bool:
        """Whether it only looks on."""
        return isinstance(self.asked, ExactRequest) and bool(self.asked.admin_access)


def wishes(spec: ClaimSpec) -> Iterator[Wish]:
    """Give every request and every alternative of the claim."""
    devices = spec.devices
    for index, request in enumerate((devices.requests if devices else None) or ()):
        path = f"devices.requests[{index}]"
        if request.exactly is not None:
            yield Wish(f"{path}.exactly", index, request.exactly)
        for place, each in enumerate(request.first_available or ()):
            yield Wish(f"{path}.firstAvailable[{place}]", index, each)


def problems(
    spec: ClaimSpec, prefix: str, classes: Mapping[str, GPUClass], namespace: Namespace
) -> list[InvalidError]:
    """Return all that is wrong with a claim whose spec stands at `prefix`, e.g. spec."""
    found = _config_problems(spec, prefix)
    asked: dict[str, list[Wish]] = {}
    for wish in wishes(spec):
        if wish.asked.device_class_name in classes and not wish.is_admin:
            asked.setdefault(wish.asked.device_class_name, []).append(wish)
    for name, chosen in asked.items():
        found += _usage_problems(classes[name], chosen, prefix, namespace)
        for wish in chosen:
            found += _amount_problems(classes[name], wish, prefix)
    return found


def _config_problems(spec: ClaimSpec, prefix: str) -> list[InvalidError]:
    devices = spec.devices
    return [
        problem
        for index, each in enumerate((devices.config if devices else None) or ())
        if each.opaque is not None and each.opaque.driver == labels.DRIVER
        for problem in deviceconfigs.problems(
            each.opaque.parameters, f"{prefix}.devices.config[{index}].opaque.parameters"
        )
    ]


def _usage_problems(
    gpu_class: GPUClass, chosen: list[Wish], prefix: str, namespace: Namespace
) -> list[InvalidError]:
    limits, name = gpu_class.spec.usage, gpu_class.metadata.name
    if limits is None:
        return []
    found = []
    selector = limits.namespace_selector
    if selector is not None and not usage.fits(selector, namespace.labels):
        allowed = f"namespaces with the labels {usage.sentence(selector)}"
        field = f"{prefix}.{chosen[0].path}.deviceClassName"
        message = (
            f'{field}: GPUClass "{name}" may not be used in the namespace '
            f'"{namespace.name}"; allowed: {allowed}'
        )
        found.append(InvalidError(message, reason="NamespaceNotAllowed", field=field))
    most = limits.max_devices_per_claim
    if most is not None:
        found += _count_problems(chosen, f'GPUClass "{name}"', most, prefix)
    return found


def _count_problems(chosen: list[Wish], what: str, most: int, prefix: str) -> list[InvalidError]:
    limited = f"at most {most} devices of {what} in one claim"
    for wish in chosen:
        if wish.asked.allocation_mode == ALL:
            field = f"{prefix}.{wish.path}.allocationMode"
            message = f"{field}: All asks for every device there is; allowed: {limited}"
            return [InvalidError(message, reason="TooManyDevices", field=field)]
    counts: dict[int, int] = {}
    for wish in chosen:
        # Of several alternatives the claim gets one.
        counts[wish.entry] = max(counts.get(wish.entry, 0), wish.asked.count or 1)
    total = sum(counts.values())
    if total <= most:
        return []
    field = f"{prefix}.{chosen[0].path}.count" if len(chosen) == 1 else f"{prefix}.devices.requests"
    message = f"{field}: the claim asks for {total} devices; allowed: {limited}"
    return [InvalidError(message, reason="TooManyDevices", field=field)]


def _amount_problems(gpu_class: GPUClass, wish: Wish, prefix: str) -> list[InvalidError]:
    share = _share(gpu_class)
    most = share.memory.max if share and share.memory else None
    requests = _requests(wish.asked.capacity)
    name = _named(requests, attributes.MEMORY)
    if most is None or name is None:
        return []
    field = f"{prefix}.{wish.path}.capacity.requests[{name}]"
    try:
        amount = quantities.parse(requests[name], field)
    except InvalidError as error:
        return [error]
    if amount <= quantities.parse(most):
        return []
    message = (
        f"{field}: {requests[name]} is more than a share may have; allowed: at most {most}, "
        f'the maximum of GPUClass "{gpu_class.metadata.name}"'
    )
    return [InvalidError(message, reason="ShareTooLarge", field=field)]


def defaults(
    spec: ClaimSpec, pointer: str, classes: Mapping[str, GPUClass]
) -> list[dict[str, Any]]:
    """Return the JSON patch (RFC 6902) that puts amounts of share classes where none are named.

    `pointer` is the JSON pointer of the claim's spec, e.g. /spec. A class that offers other
    kinds besides shares has no amounts: they would keep its whole cards and partitions out.
    """
    patch: list[dict[str, Any]] = []
    for wish in wishes(spec):
        gpu_class = classes.get(wish.asked.device_class_name)
        if gpu_class is None or wish.is_admin:
            continue
        given = _requests(wish.asked.capacity)
        missing = {
            name: amount
            for name, amount in _amounts(gpu_class).items()
            if _named(given, name) is None
        }
        if missing:
            where = f"{pointer}/" + wish.path.replace("[", "/").replace("]", "").replace(".", "/")
            value = {"requests": {**given, **missing}}
            patch.append({"op": "add", "path": f"{where}/capacity", "value": value})
    return patch


def _amounts(gpu_class: GPUClass) -> dict[str, str | int]:
    share = _share(gpu_class)
    found: dict[str, str | int] = {}
    if share and share.memory and share.memory.default is not None:
        found[attributes.MEMORY] = str(share.memory.default)
    if share and share.cores and share.cores.default is not None:
        found[attributes.CORES] = str(share.cores.default)
    return found


def _share(gpu_class: GPUClass) -> gpuclass.ShareRequirements | None:
    try:
        only_shares = selectors.kinds(gpu_class.spec) == [gpuclass.SHARE]
    except InvalidError:  # Written under another schema; its status says so.
        return None
    return gpu_class.spec.share if only_shares else None


def _requests(capacity: CapacityRequirements | None) -> dict[str, str | int]:
    return (capacity.requests if capacity else None) or {}


def _named(requests: Mapping[str, str | int], name: str) -> str | None:
    """Return how the capacity is called in a request: bare, or with the driver's domain."""
    return next((each for each in (name, f"{attributes.DOMAIN}/{name}") if each in requests), None)
