# SPDX-License-Identifier: Apache-2.0
"""Who has an extended resource name that two classes ask for.

Pure. Kubernetes gives the name to the newest DeviceClass (resource.k8s.io/v1,
1.37), so making a class could take pods away from another one. Here the older
GPUClass keeps the name, and a DeviceClass of somebody else always does; the other
class is made without the name and says so.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpudeck.api.resource import DeviceClass
from gpudeck.api.v1alpha1.gpuclass import GPUClass, asked_name
from gpudeck.controller.gpuclass import deviceclass


def sentence(
    gpu_class: GPUClass, classes: Iterable[GPUClass], device_classes: Iterable[DeviceClass]
) -> str:
    """Return why a class cannot have its extended resource name; empty if it can."""
    name, own = asked_name(gpu_class), gpu_class.metadata.name
    if not name:
        return ""
    foreign = sorted(
        each.metadata.name
        for each in device_classes
        if each.spec is not None
        and each.spec.extended_resource_name == name
        and each.metadata.name != own
        and not deviceclass.is_ours(each)
    )
    older = sorted(
        each.metadata.name
        for each in classes
        if asked_name(each) == name and _age(each) < _age(gpu_class)
    )
    holders = [f"DeviceClass {each}" for each in foreign] + [f"GPUClass {each}" for each in older]
    if not holders:
        return ""
    return (
        f"spec.extendedResourceName: {name!r} belongs to {' and '.join(holders)}, so GPUClass "
        f"{own} is without it; give it another name, or the empty string for none"
    )


def _age(gpu_class: GPUClass) -> tuple[str, str]:
    return gpu_class.metadata.creation_timestamp or "", gpu_class.metadata.name
