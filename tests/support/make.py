# SPDX-License-Identifier: Apache-2.0
"""Builders of cluster objects as dicts: valid by default, only what matters is written.

`world` turns them into the snapshot that `explaining` works on; `put` stores them
in an in-memory API server.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from tests.support.apiserver import ApiServer

from gpudeck.api import resources
from gpudeck.api.core import Event, Node, Pod
from gpudeck.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.explaining import world as worlds

Object = dict[str, Any]
H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"
_KINDS: dict[str, tuple[resources.Resource, type[Any], str]] = {
    "Node": (resources.NODE, Node, "nodes"),
    "Pod": (resources.POD, Pod, "pods"),
    "ResourceClaim": (resources.RESOURCE_CLAIM, ResourceClaim, "claims"),
    "DeviceClass": (resources.DEVICE_CLASS, DeviceClass, "device_classes"),
    "GPUClass": (resources.GPU_CLASS, GPUClass, "gpu_classes"),
    "PhysicalGPU": (resources.PHYSICAL_GPU, PhysicalGPU, "gpus"),
    "DeviceTaintRule": (resources.DEVICE_TAINT_RULE, DeviceTaintRule, "taint_rules"),
    "ResourceClaimTemplate": (
        resources.RESOURCE_CLAIM_TEMPLATE,
        worlds.ResourceClaimTemplate,
        "templates",
    ),
}


def world(*objects: Object) -> worlds.World:
    """Return the snapshot of a cluster that holds the objects."""
    made = worlds.World()
    for each in objects:
        if each["kind"] == "ResourceSlice":
            made.slices.append(msgspec.convert(each, ResourceSlice))
        elif each["kind"] == "Event":
            made.events.append(msgspec.convert(each, Event))
        else:
            _, type_, field = _KINDS[each["kind"]]
            meta = each["metadata"]
            key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
            getattr(made, field)[key] = msgspec.convert(each, type_)
    return made


def put(server: ApiServer, *objects: Object) -> None:
    """Store the objects as they are, status and all."""
    for each in objects:
        if each["kind"] == "ResourceSlice":
            server.put(resources.RESOURCE_SLICE, each)
        else:
            server.put(_KINDS[each["kind"]][0], each)


def node(name: str = "node-0", *, ready: bool = True, labels: Object | None = None,
         spec: Object | None = None, capacity: Object | None = None,
         allocatable: Object | None = None) -> Object:  # fmt: skip
    """A Node; `allocatable` is `capacity` unless given."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec or {},
        "status": {
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "capacity": capacity or {},
            "allocatable": capacity or {} if allocatable is None else allocatable,
        },
    }


def address(index: int) -> str:
    """The PCI address of the card with this index."""
    return f"0000:{0x1B + index:02x}:00.0"


def uuid(node_name: str, index: int) -> str:
    """The UUID of a card."""
    return f"GPU-{node_name}-{index}"


def condition(
    type_: str, status: str = "True", reason: str = "Tested", message: str = "", since: str = ""
) -> Object:
    """A condition."""
    found = {"type": type_, "status": status, "reason": reason, "message": message}
    return {**found, "lastTransitionTime": since} if since else found


def card(index: int, node_name: str = "node-0", *, product: str = H100,
         conditions: Iterable[Object] = (), phase: str = "Ready",
         told: bool = True) -> Object:  # fmt: skip
    """A PhysicalGPU; the given conditions replace good ones. `told` False: no adapter spoke."""
    kinds = (
        ["Discovered", "DriverReady", "HardwareHealthy", "Published"] if told else ["Discovered"]
    )
    found = {kind: condition(kind) for kind in kinds}
    found.update({each["type"]: each for each in conditions})
    status: Object = {
        "nodeInfo": {"nodeName": node_name},
        "pciInfo": {"address": address(index), "device": {"id": "2330", "name": "GH100"}},
        "phase": phase,
        "conditions": list(found.values()),
    }
    if told:
        status["capabilities"] = {
            "vendor": "nvidia",
            "productName": product,
            "architecture": "Hopper" if product == H100 else "Ampere",
            "computeCapability": "9.0" if product == H100 else "8.0",
            "memoryMiB": 81559 if product == H100 else 40960,
        }
        status["currentState"] = {"uuid": uuid(node_name, index), "driverVersion": "580.105.8"}
    return {
        "kind": "PhysicalGPU",
        "metadata": {
            "name": f"{node_name}-{address(index).replace(':', '-').replace('.', '-')}",
            "labels": {"gpu.deckhouse.io/node": node_name, "gpu.deckhouse.io/vendor": "nvidia"},
        },
        "status": status,
    }


def device_name(index: int) -> str:
    """The DRA device name that gpudeck gives a card."""
    return "gpu-" + address(index).replace(":", "-").replace(".", "-")


def nvidia_device(index: int, node_name: str = "node-0", *, product: str = H100,
                  taints: Iterable[Object] = ()) -> Object:  # fmt: skip
    """A device as NVIDIA's DRA driver publishes it."""
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": uuid(node_name, index)},
            "productName": {"string": product},
            "cudaComputeCapability": {"version": "9.0.0"},
            "resource.kubernetes.io/pciBusID": {"string": address(index)},
        },
        "capacity": {"memory": {"value": "81559Mi"}},
        "taints": list(taints),
    }


def resource_slice(driver: str, node_name: str = "node-0", *devices: Object) -> Object:
    """A ResourceSlice that is the whole pool of a node."""
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node_name, "pool": pool, "devices": list(devices)}
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node_name}-{driver}"},
        "spec": spec,
    }


def gpu_class(name: str, *, ready: bool = True, resource: str | None = None,
              **requirements: Any) -> Object:  # fmt: skip
    """A GPUClass."""
    spec: Object = {"vendor": "nvidia", "requirements": requirements}
    if resource is not None:
        spec["extendedResourceName"] = resource
    message = "" if ready else "A DeviceClass of that name is somebody else's."
    status: Object = {"conditions": [condition("Ready", str(ready), message=message)]}
    served = f"gpu.deckhouse.io/{name}" if resource is None else resource
    if ready and served:
        status["extendedResourceName"] = served
    return {
        "kind": "GPUClass",
        "metadata": {"name": name},
        "spec": spec,
        "status": status,
    }


def device_class(name: str, *cel: str, resource: str = "", created: str = "") -> Object:
    """A DeviceClass."""
    spec: Object = {"selectors": [{"cel": {"expression": each}} for each in cel]}
    if resource:
        spec["extendedResourceName"] = resource
    return {
        "kind": "DeviceClass",
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": spec,
    }


def classes(name: str, *, resource: str | None = None, **requirements: Any) -> list[Object]:
    """A ready GPUClass and its DeviceClass."""
    shown = f"gpu.deckhouse.io/{name}" if resource is None else resource
    return [
        gpu_class(name, resource=resource, **requirements),
        device_class(name, resource=shown),
    ]


def claim(name: str, class_name: str = "h100", *, count: int = 1, devices: Iterable[Object] = (),
          pods: Iterable[str] = (), cel: Iterable[str] = ()) -> Object:  # fmt: skip
    """A ResourceClaim; with `devices` (see `allocated`) it is allocated."""
    selectors = [{"cel": {"expression": each}} for each in cel]
    exactly = {"deviceClassName": class_name, "count": count, "selectors": selectors}
    status: Object = {}
    results = list(devices)
    if results:
        status["allocation"] = {"devices": {"results": results}}
        status["reservedFor"] = [
            {"resource": "pods", "name": pod_name, "uid": pod_name} for pod_name in pods
        ]
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        "status": status,
    }


def allocated(index: int, node_name: str = "node-0", *, driver: str = "gpu.deckhouse.io",
              device: str = "", admin: bool = False) -> Object:  # fmt: skip
    """An entry of an allocation: by default one of gpudeck's cards."""
    return {
        "request": "gpu", "driver": driver, "pool": node_name,
        "device": device or device_name(index), "adminAccess": admin,
    }  # fmt: skip


def held(index: int, pod_name: str, node_name: str = "node-0") -> Object:
    """A claim by which a pod holds a card."""
    return claim(f"{pod_name}-claim", devices=[allocated(index, node_name)], pods=[pod_name])


def pod(name: str = "asker", *, limits: Object | None = None, claims: Iterable[str] = (),
        templates: Iterable[str] = (), node_name: str = "", phase: str = "Pending",
        spec: Object | None = None, status: Object | None = None) -> Object:  # fmt: skip
    """A Pod that asks by extended resources, by claims, or by templates."""
    entries: list[Object] = [{"name": each, "resourceClaimName": each} for each in claims]
    entries += [{"name": each, "resourceClaimTemplateName": each} for each in templates]
    container = {"name": "main", "resources": {"limits": limits or {}}}
    body: Object = {"containers": [container], "resourceClaims": entries, **(spec or {})}
    if node_name:
        body["nodeName"] = node_name
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": body,
        "status": {"phase": phase, **(status or {})},
    }
