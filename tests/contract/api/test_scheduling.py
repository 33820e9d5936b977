# SPDX-License-Identifier: Apache-2.0
"""The real scheduler selects for a class exactly the devices that `selectors.matches` names.

Claims with administrative access and mode All take every device that their class
selects, and leave it to others: one result a class is its whole selection.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from gpudeck.api import attributes, labels, names, quantities, resources, selectors, versions
from gpudeck.api.resource import Device, ResourceClaim
from gpudeck.api.selectors import Traits
from gpudeck.api.v1alpha1.gpuclass import GPUClassSpec
from gpudeck.devices.identities import PciAddress
from gpudeck.kube import client

pytestmark = pytest.mark.asyncio

NAMESPACE = "selection"
CARDS = [
    Traits(
        vendor="nvidia",
        product_name="NVIDIA H100 80GB HBM3",
        architecture="Hopper",
        compute_capability="9.0",
        driver_version="570.86.05",
        memory_bytes=81559 * quantities.MEBIBYTE,
    ),
    Traits(
        vendor="nvidia",
        product_name="NVIDIA L40S",
        architecture="Ada Lovelace",
        compute_capability="8.9",
        driver_version="570.86.15",
        memory_bytes=46068 * quantities.MEBIBYTE,
    ),
    Traits(
        vendor="nvidia",
        product_name="Tesla T4",
        architecture="Turing",
        compute_capability="7.5",
        driver_version="570.86.05-grid",
        memory_bytes=15360 * quantities.MEBIBYTE,
    ),
    # Unified memory: no capacity at all.
    Traits(
        vendor="nvidia",
        product_name="NVIDIA GB10",
        architecture="Blackwell",
        compute_capability="12.1",
        driver_version="580.95.05",
    ),
    # A name with everything that a regular expression or a literal could trip over.
    Traits(vendor="metax", product_name='C500 (64GB) + \\x "q" [a] ' + "y" * 50),
    # Nothing is known.
    Traits(),
    # Parts of cards.
    Traits(
        type=attributes.TYPE_MIG,
        vendor="nvidia",
        product_name="NVIDIA H100 80GB HBM3",
        profile="1g.10gb+me",
        memory_bytes=9856 * quantities.MEBIBYTE,
        card_memory_bytes=81559 * quantities.MEBIBYTE,
    ),
    Traits(type=attributes.TYPE_MIG, vendor="nvidia", profile="1g.5gb"),
    Traits(
        type=attributes.TYPE_SHARE,
        vendor="nvidia",
        sharing_strategy="TimeSlicing",
        memory_bytes=15360 * quantities.MEBIBYTE,
    ),
    Traits(type=attributes.TYPE_SHARE, vendor="nvidia", sharing_strategy="MPS"),
]


def spec(**fields: Any) -> GPUClassSpec:
    return msgspec.convert(fields, GPUClassSpec)


def requiring(**fields: Any) -> GPUClassSpec:
    return msgspec.convert({"requirements": fields}, GPUClassSpec)


WANTED = [
    GPUClassSpec(),
    GPUClassSpec(vendor="nvidia"),
    GPUClassSpec(vendor="amd"),
    requiring(memory={"min": "40G"}),
    requiring(memory={"min": "15360Mi", "max": "46068Mi"}),
    requiring(memory={"max": "80Gi"}),
    requiring(memory={"min": 1}),
    requiring(computeCapability={"min": "8.0"}),
    requiring(computeCapability={"min": "8.9", "max": "9"}),
    requiring(computeCapability={"max": "8.9"}),
    requiring(driverVersion={"min": "550"}),
    requiring(driverVersion={"min": "570.86.5", "max": "570.86.05"}),
    requiring(driverVersion={"max": "570"}),
    requiring(architectures=["hopper"]),
    requiring(architectures=["TURING", "Ada Lovelace"]),
    requiring(products=["*H100*"]),
    requiring(products=["nvidia l40?", "Tesla*"]),
    requiring(products=["*"]),
    requiring(products=["c500 (64gb) + *"]),
    requiring(products=['*\\x "q"*']),
    requiring(products=["*[a]*"]),
    requiring(products=["*(*"]),
    requiring(products=["NVIDIA.H100*"]),
    requiring(memory={"min": "40G"}, computeCapability={"min": "9.0"}, products=["*H*"]),
    spec(devices=["Partition"]),
    spec(devices=["Partition"], partition={"profiles": ["1g.5gb", "1g.10gb+me"]}),
    spec(devices=["Partition"], partition={"memory": {"min": "9G", "max": "20G"}}),
    spec(devices=["Partition"], requirements={"memory": {"min": "80G"}}),
    spec(devices=["Share"], vendor="nvidia"),
    spec(devices=["Share"], share={"strategy": "MPS"}),
    spec(devices=["Partition", "Share"], partition={"memory": {"min": "9G"}}),
    spec(devices=["Whole", "Partition", "Share"], requirements={"memory": {"min": "15G"}}),
]


def device(index: int, card: Traits) -> dict[str, Any]:
    """A device as the DRA plugin publishes it."""
    found: dict[str, Any] = {attributes.TYPE: {"string": card.type}}
    texts = {
        attributes.PROFILE: card.profile,
        attributes.SHARING_STRATEGY: card.sharing_strategy,
        attributes.VENDOR: card.vendor,
        attributes.PRODUCT_NAME: names.attribute_text(card.product_name or ""),
        attributes.ARCHITECTURE: card.architecture,
    }
    numbers = {
        attributes.COMPUTE_CAPABILITY: versions.normalise(card.compute_capability),
        attributes.DRIVER_VERSION: versions.normalise(card.driver_version),
    }
    found |= {name: {"string": text} for name, text in texts.items() if text}
    found |= {name: {"version": number} for name, number in numbers.items() if number}
    if card.card_memory_bytes is not None:
        found[attributes.CARD_MEMORY] = {"int": card.card_memory_bytes}
    made = {"name": names.gpu_device_name(PciAddress(0, index, 0, 0)), "attributes": found}
    if card.memory_bytes is not None:
        made["capacity"] = {attributes.MEMORY: {"value": quantities.render(card.memory_bytes)}}
    return made


async def test_the_scheduler_and_the_predicate_select_the_same_cards(
    connection: client.Client, scheduler: None
) -> None:
    await publish(connection)
    for index, wanted in enumerate(WANTED):
        await ask(connection, f"class-{index}", wanted)
    for index, wanted in enumerate(WANTED):
        expected = {
            made["name"]
            for made in map(device, range(len(CARDS)), CARDS)
            if selectors.matches(wanted, selectors.traits_of_device(msgspec.convert(made, Device)))
        }
        assert expected == {
            device(number, card)["name"]
            for number, card in enumerate(CARDS)
            if selectors.matches(wanted, card)
        }
        selected = await selection(connection, f"class-{index}", wait=bool(expected))
        assert (index, selected) == (index, expected)


async def publish(connection: client.Client) -> None:
    """One node with all the cards, and a card of another driver that no class may look at."""
    node = {"metadata": {"name": "node-0"}}
    ready = {"type": "Ready", "status": "True"}
    room = {"cpu": "100", "memory": "100Gi", "pods": "1000"}
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    await connection.create(resources.NODE, node, dict)
    await connection.merge_patch(
        resources.NODE, "node-0", {"spec": {"taints": None}, "status": status}, dict
    )
    await connection.merge_patch(
        resources.NODE, "node-0", {"status": status}, dict, subresource="status"
    )
    pools = {
        labels.DRIVER: [device(index, card) for index, card in enumerate(CARDS)],
        "nic.example.com": [{"name": "nic-0"}],
    }
    for driver, devices in pools.items():
        pool = {"name": f"pool-{driver}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": "node-0", "pool": pool, "devices": devices}
        body = {"metadata": {"name": driver}, "spec": spec}
        await connection.create(resources.RESOURCE_SLICE, body, dict)
    admin = {"resource.kubernetes.io/admin-access": "true"}
    body = {"metadata": {"name": NAMESPACE, "labels": admin}}
    await connection.create(resources.NAMESPACE, body, dict)


async def ask(connection: client.Client, name: str, wanted: GPUClassSpec) -> None:
    """A DeviceClass as the controller makes it, a claim for all it selects, and a pod."""
    selector = {"cel": {"expression": selectors.expression(wanted)}}
    body = {"metadata": {"name": name}, "spec": {"selectors": [selector]}}
    await connection.create(resources.DEVICE_CLASS, body, dict)
    exactly = {"deviceClassName": name, "allocationMode": "All", "adminAccess": True}
    meta = {"name": name, "namespace": NAMESPACE}
    requests = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    await connection.create(resources.RESOURCE_CLAIM, {"metadata": meta, "spec": requests}, dict)
    pod = {
        "resourceClaims": [{"name": "c", "resourceClaimName": name}],
        "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "c"}]}}],
    }
    await connection.create(resources.POD, {"metadata": meta, "spec": pod}, dict)


async def selection(connection: client.Client, name: str, *, wait: bool) -> set[str]:
    """The devices that a claim got; the pod of a claim that gets none is looked at instead."""
    async with asyncio.timeout(30):
        while True:
            claim = await connection.get(
                resources.RESOURCE_CLAIM, name, ResourceClaim, namespace=NAMESPACE
            )
            allocation = claim.status.allocation if claim.status else None
            if allocation is not None and allocation.devices is not None:
                return {each.device for each in allocation.devices.results or ()}
            pod = await connection.get(resources.POD, name, dict, namespace=NAMESPACE)
            if not wait and pod.get("status", {}).get("conditions"):
                return set()
            await asyncio.sleep(0.1)
