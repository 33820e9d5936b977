# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the requests and the configuration of a claim or a claim template. Pure.

Who may use a class and how much of it is enforced by policies in the API server itself
(chart, `usage.yaml`); here stands what they cannot know: whether the cards of the cluster
could ever serve a request, and the strict reading of opaque parameters. Requests of
other drivers' classes and configurations of other drivers are not looked at. All that is
wrong is told at once, each with its field, the value and what is allowed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from gpudeck.api import attributes, deviceconfigs, quantities, selectors
from gpudeck.api.resource import ClaimSpec, ExactRequest, SubRequest
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.controller.admission.fleet import Fleet, Reach
from gpudeck.errors import InvalidError

_ALL = "All"
"""The allocation mode that takes every device that matches, however many there are."""


@dataclasses.dataclass(frozen=True)
class Wish:
    """One request or one alternative of a request, with its place in the claim's spec."""

    path: str
    asked: ExactRequest | SubRequest

    @property
    def count(self) -> int:
        """How many devices it takes at least."""
        return 1 if self.asked.allocation_mode == _ALL else self.asked.count or 1


def wishes(spec: ClaimSpec) -> Iterator[list[Wish]]:
    """Give each request as its alternatives; one that is `exactly` one kind has one."""
    devices = spec.devices
    for index, request in enumerate((devices.requests if devices else None) or ()):
        path = f"devices.requests[{index}]"
        if request.exactly is not None:
            yield [Wish(f"{path}.exactly", request.exactly)]
        else:
            yield [
                Wish(f"{path}.firstAvailable[{place}]", each)
                for place, each in enumerate(request.first_available or ())
            ]


def config_problems(spec: ClaimSpec, prefix: str) -> list[InvalidError]:
    """Return what is wrong with the claim's opaque parameters of our driver."""
    configs = (spec.devices.config if spec.devices else None) or ()
    return deviceconfigs.all_problems(
        (each.opaque, f"{prefix}.devices.config[{index}]") for index, each in enumerate(configs)
    )


def impossible(
    spec: ClaimSpec, prefix: str, classes: Mapping[str, GPUClass], fleet: Fleet
) -> list[InvalidError]:
    """Return why no card of the cluster could ever serve the claim; nothing if one could.

    Of several alternatives one that could be served is enough. `prefix` is the path of the
    claim's spec in the object: spec, or spec.spec in a template.
    """
    found: list[InvalidError] = []
    for alternatives in wishes(spec):
        each = [_impossible(wish, prefix, classes, fleet) for wish in alternatives]
        if each and all(each):
            found += [problem for problems in each for problem in problems]
    return found


def _impossible(
    wish: Wish, prefix: str, classes: Mapping[str, GPUClass], fleet: Fleet
) -> list[InvalidError]:
    gpu_class = classes.get(wish.asked.device_class_name)
    if gpu_class is None:
        return []
    try:
        reach = fleet.reach(gpu_class.spec)
    except InvalidError:  # Written under another schema: the status of the class says so.
        return []
    if reach is None:
        return []
    where = f"{prefix}.{wish.path}"
    return _too_many(wish, where, gpu_class, reach) or _too_large(wish, where, gpu_class, reach)


def _too_many(wish: Wish, where: str, gpu_class: GPUClass, reach: Reach) -> list[InvalidError]:
    if reach.devices is None or wish.count <= reach.devices:
        return []
    return [too_many(f"{where}.count", wish.count, gpu_class, reach)]


def too_many(field: str, count: int, gpu_class: GPUClass, reach: Reach) -> InvalidError:
    """Say that no node has so many devices of the class."""
    name, most = gpu_class.metadata.name, reach.devices or 0
    if not most:
        return InvalidError(
            f"{field}: no card of the cluster offers a device of GPUClass {name}"
            f"{_wanted(gpu_class)}",
            reason="NoSuchDevice",
            field=field,
            allowed="a class that some card serves",
        )
    return InvalidError(
        f"{field}: {count} devices of GPUClass {name} are more than any node could give; "
        f"all devices of a claim come from one node, and the largest gives {most}",
        reason="TooManyDevices",
        field=field,
        allowed=f"at most {most}",
    )


def _wanted(gpu_class: GPUClass) -> str:
    partition = gpu_class.spec.partition
    if partition is None or not partition.profiles:
        return ""
    return f"; none has the profile {' or '.join(partition.profiles)}"


def _too_large(wish: Wish, where: str, gpu_class: GPUClass, reach: Reach) -> list[InvalidError]:
    requests = (wish.asked.capacity.requests if wish.asked.capacity else None) or {}
    for name in (attributes.MEMORY, f"{attributes.DOMAIN}/{attributes.MEMORY}"):
        if name not in requests:
            continue
        field = f"{where}.capacity.requests[{name}]"
        if quantities.parse(requests[name], field) <= reach.largest:
            continue
        kind = "share" if selectors.kinds(gpu_class.spec) == [gpuclass.SHARE] else "device"
        most = quantities.render(reach.largest)
        return [
            InvalidError(
                f"{field}: {requests[name]} is more than any {kind} of GPUClass "
                f"{gpu_class.metadata.name} has; the largest has {most} "
                f"({quantities.short(reach.largest)})",
                reason="TooLarge",
                field=field,
                allowed=f"at most {most}",
            )
        ]
    return []
