# SPDX-License-Identifier: Apache-2.0
"""GPUClass: what a group of users may ask for; the controller makes a DeviceClass of the same name."""

from __future__ import annotations

import msgspec

from gpudeck.api.meta import Condition, ObjectMeta, Wire


class SizeRange(Wire):
    """Bounds in bytes, as Kubernetes quantities; both ends included."""

    min: str | int | None = None
    max: str | int | None = None


class VersionRange(Wire):
    min: str | None = None
    max: str | None = None


class Requirements(Wire):
    memory: SizeRange | None = None
    compute_capability: VersionRange | None = None
    driver_version: VersionRange | None = None
    architectures: list[str] | None = None
    products: list[str] | None = None


class GPUClassSpec(Wire):
    vendor: str | None = None
    devices: list[str] | None = None
    requirements: Requirements | None = None
    extended_resource_name: str | None = None


class Matching(Wire, omit_defaults=False):
    gpus: int = 0
    devices: int = 0


class GPUClassStatus(Wire):
    conditions: list[Condition] | None = None
    device_class_name: str | None = None
    matching: Matching | None = None
    free: int | None = None
    allocated: int | None = None
    message: str | None = None


class GPUClass(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: GPUClassSpec = msgspec.field(default_factory=GPUClassSpec)
    status: GPUClassStatus | None = None
