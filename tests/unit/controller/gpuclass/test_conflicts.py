# SPDX-License-Identifier: Apache-2.0
"""An extended resource name belongs to one class."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.support import gpus

from gpudeck.api.resource import DeviceClass
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.controller.gpuclass import conflicts


def gpu_class(name: str, created: str = gpus.SINCE, **spec: Any) -> GPUClass:
    return msgspec.convert(gpus.gpu_class(name, created=created, **spec), GPUClass)


def foreign(name: str, resource: str) -> DeviceClass:
    raw = {"metadata": {"name": name}, "spec": {"extendedResourceName": resource}}
    return msgspec.convert(raw, DeviceClass)


def test_the_older_class_keeps_the_name_and_the_younger_says_so_naming_both() -> None:
    old = gpu_class("old", "2026-01-01T00:00:00Z", extendedResourceName="nvidia.com/gpu")
    new = gpu_class("new", "2026-01-02T00:00:00Z", extendedResourceName="nvidia.com/gpu")
    assert conflicts.sentence(old, [old, new], []) == ""
    found = conflicts.sentence(new, [old, new], [])
    assert "GPUClass old" in found
    assert "GPUClass new" in found
    assert "'nvidia.com/gpu'" in found


def test_of_two_classes_of_one_second_the_first_by_name_keeps_it() -> None:
    first, second = (gpu_class(name, extendedResourceName="a.example.com/x") for name in "ab")
    assert conflicts.sentence(first, [first, second], []) == ""
    assert "GPUClass a" in conflicts.sentence(second, [first, second], [])


def test_a_default_name_can_collide_with_a_chosen_one() -> None:
    chosen = gpu_class("a", extendedResourceName="gpu.deckhouse.io/b")
    default = gpu_class("b")
    assert "GPUClass a" in conflicts.sentence(default, [chosen, default], [])


def test_a_device_class_of_somebody_else_keeps_its_name() -> None:
    mine = gpu_class("gpu", extendedResourceName="nvidia.com/gpu")
    found = conflicts.sentence(mine, [mine], [foreign("gpu.nvidia.com", "nvidia.com/gpu")])
    assert "DeviceClass gpu.nvidia.com" in found


def test_classes_without_an_extended_resource_never_collide() -> None:
    first, second = (gpu_class(name, extendedResourceName="") for name in "ab")
    assert conflicts.sentence(second, [first, second], [foreign("c", "")]) == ""
