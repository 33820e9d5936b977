# SPDX-License-Identifier: Apache-2.0
"""The DeviceClass of a GPUClass: what it must be, whose one is, and whether it drifted.

Pure. The name is exactly that of the GPUClass: users and Deckhouse's virtualization
name the one and get the other.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gpudeck.api import deviceconfigs, labels, resources, selectors
from gpudeck.api.meta import ObjectMeta, OwnerReference
from gpudeck.api.resource import (
    CELSelector,
    ClassConfig,
    DeviceClass,
    DeviceClassSpec,
    DeviceSelector,
    OpaqueConfig,
)
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.api.v1alpha1.gpuclass import GPUClass, GPUClassSpec, ShareRequirements


def wanted(gpu_class: GPUClass, resource_name: str) -> DeviceClass:
    """Return the DeviceClass; an empty `resource_name` leaves that out.

    Raises InvalidError if the class cannot be read.
    """
    expression = selectors.expression(gpu_class.spec)
    return DeviceClass(
        metadata=ObjectMeta(
            name=gpu_class.metadata.name,
            labels={labels.MANAGED_BY: labels.MANAGED_BY_GPUDECK},
            owner_references=[_owner(gpu_class)],
        ),
        spec=DeviceClassSpec(
            selectors=[DeviceSelector(cel=CELSelector(expression=expression))],
            config=_config(gpu_class.spec),
            extended_resource_name=resource_name or None,
        ),
    )


def without_name(target: DeviceClass) -> DeviceClass:
    """Return the DeviceClass as API servers keep it that map no extended resources."""
    if target.spec is None:
        return target
    spec = msgspec.structs.replace(target.spec, extended_resource_name=None)
    return msgspec.structs.replace(target, spec=spec)


def has_lost_name(found: DeviceClass, target: DeviceClass) -> bool:
    """Say whether the server dropped the extended resource name (1.34 and 1.35 as shipped)."""
    have, want = found.spec or DeviceClassSpec(), target.spec or DeviceClassSpec()
    return bool(want.extended_resource_name) and not have.extended_resource_name


def _config(spec: GPUClassSpec) -> list[ClassConfig] | None:
    """Return how the driver is to share a card; None for classes without shares."""
    if gpuclass.SHARE not in selectors.kinds(spec):
        return None
    share = spec.share or ShareRequirements()
    sharing: dict[str, Any] = {"strategy": share.strategy or gpuclass.TIME_SLICING}
    if share.interval is not None:
        sharing["timeSlicingConfig"] = {"interval": share.interval}
    parameters = {
        "apiVersion": deviceconfigs.API_VERSION,
        "kind": deviceconfigs.GPU_CONFIG,
        "sharing": sharing,
        "memory": {"enforce": share.enforce or gpuclass.ENFORCE_DRIVER},
    }
    raw = msgspec.Raw(msgspec.json.encode(parameters))
    return [ClassConfig(opaque=OpaqueConfig(driver=labels.DRIVER, parameters=raw))]


def _owner(gpu_class: GPUClass) -> OwnerReference:
    return OwnerReference(
        api_version=resources.GPU_CLASS.api_version,
        kind=resources.GPU_CLASS.kind,
        name=gpu_class.metadata.name,
        uid=gpu_class.metadata.uid or "",
        controller=True,
    )


def is_ours(found: DeviceClass) -> bool:
    """Say whether gpudeck made it: by its label or by its owner, of which somebody may take one."""
    meta = found.metadata
    if (meta.labels or {}).get(labels.MANAGED_BY) == labels.MANAGED_BY_GPUDECK:
        return True
    return any(
        owner.kind == resources.GPU_CLASS.kind
        and owner.api_version.startswith(labels.GROUP + "/")
        and owner.name == meta.name
        for owner in meta.owner_references or ()
    )


def has_drifted(found: DeviceClass, target: DeviceClass) -> bool:
    """Say whether what gpudeck wants of a DeviceClass is not so; foreign labels do not count."""
    ours = {(owner.kind, owner.uid) for owner in target.metadata.owner_references or ()}
    theirs = {(owner.kind, owner.uid) for owner in found.metadata.owner_references or ()}
    label = (found.metadata.labels or {}).get(labels.MANAGED_BY)
    return (
        label != labels.MANAGED_BY_GPUDECK or not ours <= theirs or spec_has_drifted(found, target)
    )


def spec_has_drifted(found: DeviceClass, target: DeviceClass) -> bool:
    """Say whether the spec differs; all of it is gpudeck's, also what it leaves out."""
    have, want = found.spec or DeviceClassSpec(), target.spec or DeviceClassSpec()
    return (
        have.selectors != want.selectors
        or (have.extended_resource_name or None) != want.extended_resource_name
        or _content(have.config) != _content(want.config)
    )


def _content(config: list[ClassConfig] | None) -> Any:
    """Return configuration as values: the API server writes the keys in an order of its own."""
    return msgspec.json.decode(msgspec.json.encode(config or []))


def spec_patch(target: DeviceClass) -> dict[str, object]:
    """Return the merge patch that takes out what others put into the spec.

    Server-side apply leaves fields of other managers alone that gpudeck does not set.
    """
    spec = target.spec or DeviceClassSpec()
    return {
        "spec": {
            "selectors": spec.selectors,
            "extendedResourceName": spec.extended_resource_name,
            "config": spec.config,
        }
    }
