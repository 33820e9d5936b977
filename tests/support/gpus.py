# SPDX-License-Identifier: Apache-2.0
"""Builders of cards, claims and classes: defaults are valid, tests write what matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpudeck.api import conditions, labels, names
from gpudeck.devices.identities import PciAddress

ADDRESS = "0000:1b:00.0"
SINCE = "2026-01-01T00:00:00Z"


def condition(
    kind: str, status: str, *, reason: str = "Tested", message: str = ""
) -> dict[str, Any]:
    """A condition that has been so since the beginning of 2026."""
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": SINCE,
    }


HEALTHY = {
    conditions.DISCOVERED: "True",
    conditions.DRIVER_READY: "True",
    conditions.HARDWARE_HEALTHY: "True",
    conditions.PUBLISHED: "True",
}


def gpu(
    *,
    node: str = "node-0",
    address: str = ADDRESS,
    product: str = "NVIDIA H100 80GB HBM3",
    memory_mib: int | None = 81559,
    states: Mapping[str, str] = HEALTHY,
    support: Mapping[str, Any] | None = None,
    **status: Any,
) -> dict[str, Any]:
    """A PhysicalGPU: by default an H100 that is healthy and published."""
    capabilities: dict[str, Any] = {
        "vendor": "nvidia",
        "productName": product,
        "architecture": "Hopper" if "H100" in product else "Ampere",
        "computeCapability": "9.0" if "H100" in product else "8.0",
    }
    if memory_mib is not None:
        capabilities["memoryMiB"] = memory_mib
    if support is not None:
        capabilities["partitionSupport"] = support
    name = names.physical_gpu_name(node, PciAddress.parse(address))
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {labels.NODE: node, labels.VENDOR: "nvidia"},
        },
        "status": {
            "nodeInfo": {"nodeName": node},
            "pciInfo": {"address": address},
            "capabilities": capabilities,
            "currentState": {"driverVersion": "570.86.05"},
            "conditions": [condition(kind, state) for kind, state in states.items()],
            **status,
        },
    }


def profile(
    name: str, number: int, memory_mib: int, starts: tuple[int, ...], *, slices: int = 1, size: int
) -> dict[str, Any]:
    """A profile whose partitions have `size` memory slices and may begin at `starts`."""
    return {
        "name": name,
        "profileID": number,
        "memoryMiB": memory_mib,
        "maxInstances": len(starts),
        "slices": slices,
        "multiprocessors": 14 * slices,
        "placements": [{"start": start, "size": size} for start in starts],
    }


FOUR_SLICES: dict[str, Any] = {
    "supported": True,
    "dynamic": True,
    "totalSlices": 4,
    "profiles": [
        profile("1g.6gb", 14, 5952, (0, 1, 2, 3), size=1),
        profile("2g.12gb", 5, 12032, (0, 2), slices=2, size=2),
        profile("4g.24gb", 0, 24125, (0,), slices=4, size=4),
    ],
}
"""A card that is cut up without a reset."""


def held(*devices: str, shares: tuple[int, ...] = (), total: int = 81559) -> dict[str, Any]:
    """An occupancy as the controller writes it: devices as `gpu` or `mig-<…>`, shares in MiB."""
    address = PciAddress.parse(ADDRESS).dashed
    claims: list[dict[str, Any]] = []
    for device in devices:
        kind, _, rest = device.partition("-")
        name = f"{kind}-{address}" + (f"-{rest}" if rest else "")
        claims.append({"device": name})
    for amount in shares:
        claims.append({"device": f"share-{address}", "shareID": "s", "memoryMiB": amount})
    for index, each in enumerate(claims):
        each |= {"namespace": "t", "name": f"c{index}", "uid": f"u{index}"}
    used = total if "gpu" in devices else sum(shares)
    return {
        "state": "Full" if "gpu" in devices else "Partial" if claims else "Free",
        "memoryMiB": {"total": total, "used": used},
        "claims": claims,
    }


def adapter_pod(node: str = "node-0", *, ready: str = "True", name: str = "") -> dict[str, Any]:
    """The pod of the adapter of a node."""
    return {
        "metadata": {
            "name": name or f"nvidia-adapter-{node}",
            "namespace": "gpudeck-system",
            "labels": {labels.COMPONENT: "nvidia-adapter"},
        },
        "spec": {"nodeName": node, "containers": [{"name": "dra-plugin", "image": "gpudeck"}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def result(*, node: str = "node-0", address: str = ADDRESS, **more: Any) -> dict[str, Any]:
    """One allocated device: by default the whole card of `gpu`."""
    device = names.gpu_device_name(PciAddress.parse(address))
    return {"request": "r", "driver": labels.DRIVER, "pool": node, "device": device, **more}


def claim(
    name: str = "c", *results: dict[str, Any], pods: tuple[str, ...] = (), uid: str = ""
) -> dict[str, Any]:
    """A ResourceClaim in namespace t that holds the devices of `results`."""
    status: dict[str, Any] = {}
    if results:
        status["allocation"] = {"devices": {"results": list(results)}}
        status["reservedFor"] = [
            {"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods
        ]
    metadata = {"name": name, "namespace": "t", "uid": uid or f"uid-{name}"}
    return {"metadata": metadata, "spec": {"devices": {}}, "status": status}


def gpu_class(name: str = "h100", *, created: str = SINCE, **spec: Any) -> dict[str, Any]:
    """A GPUClass that anybody's card meets, unless `spec` says more."""
    return {
        "metadata": {"name": name, "creationTimestamp": created, "generation": 1},
        "spec": {"devices": ["Whole"], **spec},
    }
