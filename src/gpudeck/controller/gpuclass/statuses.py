# SPDX-License-Identifier: Apache-2.0
"""The status of a GPUClass, from what became of its DeviceClass and from the counts. Pure."""

from __future__ import annotations

import dataclasses

from gpudeck.api import conditions
from gpudeck.api.meta import Condition
from gpudeck.api.v1alpha1.gpuclass import WHOLE, GPUClass, GPUClassStatus, Matching
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


def of(gpu_class: GPUClass, outcome: Outcome, counts: Counts, now: str) -> GPUClassStatus:
    """Return the whole status; `now` is when a condition changes, if one does."""
    old = gpu_class.status.conditions if gpu_class.status else None
    condition = Condition(
        type=conditions.READY,
        status=conditions.TRUE if outcome.ready else conditions.FALSE,
        reason=outcome.reason,
        message=outcome.message,
        observed_generation=gpu_class.metadata.generation or 0,
    )
    is_whole = (gpu_class.spec.devices or [WHOLE]) == [WHOLE]
    return GPUClassStatus(
        conditions=conditions.merge(old, [condition], now),
        device_class_name=outcome.device_class_name,
        extended_resource_name=outcome.resource_name,
        matching=Matching(gpus=counts.gpus, devices=counts.devices if is_whole else None),
        free=counts.free if is_whole else None,
        allocated=counts.allocated if is_whole else None,
        message=_sentence(outcome, counts, is_whole=is_whole),
    )


def _sentence(outcome: Outcome, counts: Counts, *, is_whole: bool) -> str:
    if not outcome.ready:
        return outcome.message
    if not counts.gpus:
        return "no card of the cluster meets the requirements"
    if not is_whole:
        return f"parts of {counts.gpus} matching cards, as far as the cards offer them"
    return f"{counts.free} of {counts.gpus} matching cards free, {counts.allocated} held"
