# SPDX-License-Identifier: Apache-2.0
"""The status of a GPUClass, from what became of its DeviceClass and from the counts. Pure."""

from __future__ import annotations

import dataclasses

from gpudeck.api import conditions, quantities
from gpudeck.api.meta import Condition
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.api.v1alpha1.gpuclass import GPUClass, GPUClassStatus, Matching
from gpudeck.controller.gpuclass.tally import Counts


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of the DeviceClass of a class."""

    ready: bool
    reason: str
    message: str
    device_class_name: str | None = None
    resource_name: str | None = None


def ready(name: str, resource_name: str) -> Outcome:
    """The DeviceClass is there and has its extended resource name, if it wants one."""
    asked = f"; pods ask for {resource_name}" if resource_name else ""
    return Outcome(
        ready=True,
        reason=conditions.DEVICE_CLASS_READY,
        message=f"claims name DeviceClass {name}{asked}",
        device_class_name=name,
        resource_name=resource_name or None,
    )


def is_ready(gpu_class: GPUClass, resource_name: str) -> bool:
    """Whether the class has been said to be ready under that extended resource name."""
    status = gpu_class.status or GPUClassStatus()
    found = conditions.find(status.conditions, conditions.READY)
    is_true = found is not None and found.status == conditions.TRUE
    return is_true and status.extended_resource_name == resource_name


def of(
    gpu_class: GPUClass, outcome: Outcome, counts: Counts, now: str, *, note: str = ""
) -> GPUClassStatus:
    """Return the whole status; `now` is when a condition changes, if one does.

    `note` is what else there is to say of the class, a part of a sentence.
    """
    old = gpu_class.status.conditions if gpu_class.status else None
    condition = Condition(
        type=conditions.READY,
        status=conditions.TRUE if outcome.ready else conditions.FALSE,
        reason=outcome.reason,
        message=outcome.message,
        observed_generation=gpu_class.metadata.generation or 0,
    )
    chosen = gpu_class.spec.devices or [gpuclass.WHOLE]
    return GPUClassStatus(
        conditions=conditions.merge(old, [condition], now),
        device_class_name=outcome.device_class_name,
        extended_resource_name=outcome.resource_name,
        matching=Matching(gpus=counts.gpus, devices=counts.devices),
        free=None if gpuclass.SHARE in chosen else counts.free,
        allocated=counts.allocated,
        message="; ".join(filter(None, (_sentence(outcome, counts, chosen), note))),
    )


def _sentence(outcome: Outcome, counts: Counts, chosen: list[str]) -> str:
    if not outcome.ready:
        return outcome.message
    if not counts.gpus:
        return "no card of the cluster meets the requirements"
    cards = "1 matching card" if counts.gpus == 1 else f"{counts.gpus} matching cards"
    if chosen == [gpuclass.WHOLE]:
        said = f"{counts.free} of {cards} free, {counts.allocated} held"
        parts = counts.held_otherwise
        return f"{said}, {parts} held in parts" if parts else said
    if gpuclass.SHARE in chosen:
        left = quantities.short(counts.share_mib * quantities.MEBIBYTE)
        return f"{counts.allocated} held on {cards}, {left} of memory left for shares"
    return f"{counts.free} more could be had of {cards}, {counts.allocated} held"
