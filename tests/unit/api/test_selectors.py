# SPDX-License-Identifier: Apache-2.0
"""A class selects the same cards whether the scheduler, the status or `explain` asks."""

from __future__ import annotations

import dataclasses
import itertools
import re

import msgspec
import pytest

from gpudeck.api import attributes, labels, quantities, selectors, versions
from gpudeck.api.meta import ObjectMeta
from gpudeck.api.resource import Attribute, Capacity, Device
from gpudeck.api.selectors import Traits
from gpudeck.api.v1alpha1.gpuclass import GPUClassSpec
from gpudeck.api.v1alpha1.physicalgpu import (
    Capabilities,
    CurrentState,
    PhysicalGPU,
    PhysicalGPUStatus,
)
from gpudeck.errors import InvalidError

H100 = Traits(
    vendor="nvidia",
    product_name="NVIDIA H100 80GB HBM3",
    architecture="Hopper",
    compute_capability="9.0",
    driver_version="570.86.05",
    memory_bytes=81559 * quantities.MEBIBYTE,
)
GB10 = Traits(
    vendor="nvidia",
    product_name="NVIDIA GB10",
    architecture="Blackwell",
    compute_capability="12.1",
    driver_version="580.95.05",
)
BARE = Traits()


def spec(**fields: object) -> GPUClassSpec:
    return msgspec.convert(fields, GPUClassSpec)


def requiring(**fields: object) -> GPUClassSpec:
    return spec(requirements=fields)


@pytest.mark.parametrize(
    ("wanted", "card", "selected"),
    [
        (spec(), H100, True),
        (spec(), BARE, True),
        (spec(vendor="nvidia"), H100, True),
        (spec(vendor="metax"), H100, False),
        (spec(vendor="nvidia"), BARE, False),
        (requiring(memory={"min": "80G"}), H100, True),
        (requiring(memory={"min": "80Gi"}), H100, False),
        (requiring(memory={"min": 1}), GB10, False),
        (requiring(memory={"max": "80Gi"}), GB10, False),
        (requiring(memory={"max": "81559Mi"}), H100, True),
        (requiring(computeCapability={"min": "8.0"}), H100, True),
        (requiring(computeCapability={"min": "8.0", "max": "8.9"}), H100, False),
        (requiring(computeCapability={"min": "9.0"}), GB10, True),
        (requiring(computeCapability={"max": "12"}), GB10, True),
        (requiring(driverVersion={"min": "550"}), H100, True),
        (requiring(driverVersion={"max": "570"}), H100, True),
        (requiring(driverVersion={"max": "570.86.04"}), H100, False),
        (requiring(driverVersion={"min": "550"}), BARE, False),
        (requiring(architectures=["hopper", "Ada Lovelace"]), H100, True),
        (requiring(architectures=["Hopper"]), GB10, False),
        (requiring(products=["*H100*"]), H100, True),
        (requiring(products=["H100*"]), H100, False),
        (requiring(products=["*h200*", "nvidia gb1?"]), GB10, True),
        (requiring(products=["*"]), BARE, False),
        (requiring(products=["NVIDIA.H100*"]), H100, False),
    ],
)
def test_a_card_is_selected_when_it_meets_all_requirements(
    wanted: GPUClassSpec, card: Traits, selected: bool
) -> None:
    assert selectors.matches(wanted, card) is selected


def test_a_mismatch_says_what_was_wanted_and_what_is_there() -> None:
    wanted = spec(vendor="metax", requirements={"memory": {"min": "80Gi"}})
    assert [str(each) for each in selectors.mismatches(wanted, H100)] == [
        "spec.vendor must be metax, the card has nvidia",
        "spec.requirements.memory.min must be at least 80Gi (85899345920 bytes), "
        "the card has 85520809984",
    ]
    assert "no such fact" in str(selectors.mismatches(requiring(memory={"min": 1}), GB10)[0])


def test_the_driver_is_asked_first_and_each_attribute_for_its_presence() -> None:
    wanted = requiring(
        memory={"min": "40G", "max": "80Gi"},
        computeCapability={"min": "8.0"},
        driverVersion={"max": "570"},
        architectures=["Hopper"],
        products=['*H100 "PCIe"*'],
    )
    lines = selectors.expression(wanted).split("\n&& ")
    assert lines[0] == 'device.driver == "gpu.deckhouse.io"'
    for line in lines[1:]:
        name, owner = re.match(
            r'"(\w+)" in (device\.\w+\["gpu\.deckhouse\.io"\]) && ', line
        ).groups()  # type: ignore[union-attr]
        assert f"{owner}.{name}" in line


def test_the_expression_of_a_class_with_every_requirement_is_this() -> None:
    wanted = spec(
        vendor="nvidia",
        requirements={
            "memory": {"min": "40G"},
            "computeCapability": {"min": "8.0", "max": "9.0"},
            "architectures": ["Hopper"],
            "products": ["*H100*"],
        },
    )
    owner = 'device.attributes["gpu.deckhouse.io"]'
    assert selectors.expression(wanted).split("\n&& ")[1:] == [
        f'"type" in {owner} && {owner}.type == "gpu"',
        f'"vendor" in {owner} && {owner}.vendor == "nvidia"',
        '"memory" in device.capacity["gpu.deckhouse.io"]'
        ' && device.capacity["gpu.deckhouse.io"].memory.compareTo(quantity("40000000000")) >= 0',
        f'"cudaComputeCapability" in {owner}'
        f' && {owner}.cudaComputeCapability.compareTo(semver("8.0.0")) >= 0',
        f'"cudaComputeCapability" in {owner}'
        f' && {owner}.cudaComputeCapability.compareTo(semver("9.1.0")) < 0',
        f'"architecture" in {owner} && {owner}.architecture.lowerAscii() in ["hopper"]',
        f'"productName" in {owner} && {owner}.productName.matches("(?is)^(?:.*H100.*)$")',
    ]


def test_untrusted_text_stays_inside_its_literal() -> None:
    line = selectors.expression(requiring(products=['a") || true || ("\\'])).splitlines()[-1]
    assert '"(?is)^(?:a\\\\\\"\\\\)' in line


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (spec(devices=["Passthrough"]), "spec.devices"),
        (requiring(memory={"min": "40GB"}), "spec.requirements.memory.min"),
        (requiring(computeCapability={"max": "new"}), "spec.requirements.computeCapability.max"),
        (
            requiring(driverVersion={"min": "580", "max": "570"}),
            "spec.requirements.driverVersion.min",
        ),
    ],
)
def test_a_class_that_cannot_be_read_is_refused_by_field(wanted: GPUClassSpec, field: str) -> None:
    with pytest.raises(InvalidError) as caught:
        selectors.expression(wanted)
    assert caught.value.field == field
    assert field in caught.value.message


def as_gpu(card: Traits) -> PhysicalGPU:
    mebibytes = None if card.memory_bytes is None else card.memory_bytes // quantities.MEBIBYTE
    return PhysicalGPU(
        metadata=ObjectMeta(labels={labels.VENDOR: card.vendor} if card.vendor else {}),
        status=PhysicalGPUStatus(
            capabilities=Capabilities(
                product_name=card.product_name,
                architecture=card.architecture,
                compute_capability=card.compute_capability,
                memory_mib=mebibytes,
            ),
            current_state=CurrentState(driver_version=card.driver_version),
        ),
    )


def as_device(card: Traits) -> Device:
    known = {
        attributes.TYPE: Attribute(string=card.type),
        attributes.VENDOR: Attribute(string=card.vendor),
        attributes.PRODUCT_NAME: Attribute(string=card.product_name),
        attributes.ARCHITECTURE: Attribute(string=card.architecture),
        attributes.COMPUTE_CAPABILITY: Attribute(
            version=versions.normalise(card.compute_capability)
        ),
        attributes.DRIVER_VERSION: Attribute(version=versions.normalise(card.driver_version)),
    }
    present = {name: each for name, each in known.items() if each != Attribute()}
    memory = {attributes.MEMORY: Capacity(value=quantities.render(card.memory_bytes or 0))}
    return Device(attributes=present, capacity=memory if card.memory_bytes else None)


WANTED = [
    spec(),
    spec(vendor="nvidia"),
    requiring(memory={"min": "40G", "max": "80Gi"}),
    requiring(computeCapability={"min": "8.0", "max": "9"}),
    requiring(driverVersion={"min": "570.86.05", "max": "570.86.05"}),
    requiring(architectures=["HOPPER"]),
    requiring(products=["*h100*", "*gb1?"]),
]


@pytest.mark.parametrize(("wanted", "card"), [*itertools.product(WANTED, [H100, GB10, BARE])])
def test_a_card_and_its_device_get_one_verdict(wanted: GPUClassSpec, card: Traits) -> None:
    verdicts = {
        selectors.matches(wanted, each)
        for each in (
            card,
            selectors.traits_of_gpu(as_gpu(card)),
            selectors.traits_of_device(as_device(card)),
        )
    }
    assert len(verdicts) == 1


@pytest.mark.parametrize(
    ("glob", "name", "fits"),
    [
        ("*" * 56 + "h", "nvidia a100-sxm4-40gb", False),
        ("*?" * 20, "nvidia a100-sxm4-40gb", True),
        ("*?" * 40, "nvidia a100-sxm4-40gb", False),
        ("*a*b*", "a-b", True),
        ("*a*b", "a-b-c", False),
        ("", "", True),
        ("*", "", True),
        ("?", "", False),
        ("a*a", "a", False),
    ],
)
def test_a_glob_is_answered_whatever_its_stars(glob: str, name: str, fits: bool) -> None:
    """A class of many stars once kept the controller busy for ever."""
    assert selectors._fits(glob, name) is fits


PARTITION = dataclasses.replace(
    H100,
    type="mig",
    profile="1g.10gb",
    memory_bytes=9856 * quantities.MEBIBYTE,
    card_memory_bytes=H100.memory_bytes,
)
SHARED = dataclasses.replace(H100, type="share", sharing_strategy="TimeSlicing")
ANY_9G = spec(devices=["Partition", "Share"], partition={"memory": {"min": "9G"}})


@pytest.mark.parametrize(
    ("wanted", "device", "selected"),
    [
        (spec(), PARTITION, False),
        (spec(devices=["Partition"]), PARTITION, True),
        (spec(devices=["Partition"]), H100, False),
        (spec(devices=["Whole", "Partition"]), H100, True),
        (spec(devices=["Partition"], partition={"profiles": ["1g.10gb"]}), PARTITION, True),
        (spec(devices=["Partition"], partition={"profiles": ["2g.20gb"]}), PARTITION, False),
        (spec(devices=["Partition"], partition={"memory": {"min": "10.4G"}}), PARTITION, False),
        (spec(devices=["Partition"], requirements={"memory": {"min": "80G"}}), PARTITION, True),
        (spec(devices=["Partition"], requirements={"memory": {"min": "90G"}}), PARTITION, False),
        (
            spec(devices=["Whole", "Partition"], requirements={"memory": {"min": "80G"}}),
            PARTITION,
            True,
        ),
        (ANY_9G, PARTITION, True),
        (ANY_9G, SHARED, True),
        (ANY_9G, H100, False),
        (spec(devices=["Share"]), SHARED, True),
        (spec(devices=["Share"], share={"strategy": "MPS"}), SHARED, False),
        (spec(devices=["Share"], vendor="metax"), SHARED, False),
    ],
)
def test_parts_of_cards_are_selected_by_what_they_are(
    wanted: GPUClassSpec, device: Traits, selected: bool
) -> None:
    assert selectors.matches(wanted, device) is selected
    assert selectors.mismatches(wanted, device) == [] if selected else True


def test_kinds_are_alternatives_in_the_expression() -> None:
    assert selectors.expression(ANY_9G).split("\n") == [
        'device.driver == "gpu.deckhouse.io"',
        '&& (("type" in device.attributes["gpu.deckhouse.io"] '
        '&& device.attributes["gpu.deckhouse.io"].type == "mig" '
        '&& "memory" in device.capacity["gpu.deckhouse.io"] '
        '&& device.capacity["gpu.deckhouse.io"].memory.compareTo(quantity("9000000000")) >= 0)',
        '|| ("type" in device.attributes["gpu.deckhouse.io"] '
        '&& device.attributes["gpu.deckhouse.io"].type == "share" '
        '&& "sharingStrategy" in device.attributes["gpu.deckhouse.io"] '
        '&& device.attributes["gpu.deckhouse.io"].sharingStrategy == "TimeSlicing"))',
    ]


@pytest.mark.parametrize(
    ("spec", "taken"),
    [
        ({"devices": ["Partition"]}, True),
        ({"devices": ["Whole", "Partition"]}, True),
        ({"devices": ["Whole"]}, False),
        ({"devices": ["Partition"], "partition": {"profiles": ["2g.20gb", "1g.10gb"]}}, True),
        ({"devices": ["Partition"], "partition": {"profiles": ["1g.10gb+me"]}}, False),
        ({"devices": ["Partition"], "partition": {"memory": {"min": "9G", "max": "12G"}}}, True),
        ({"devices": ["Partition"], "partition": {"memory": {"min": "12G"}}}, False),
        ({"devices": ["Partition"], "requirements": {"memory": {"min": "40G"}}}, True),
    ],
)
def test_a_profile_is_of_a_class_by_its_name_and_its_size(
    spec: dict[str, object], taken: bool
) -> None:
    wanted = msgspec.convert(spec, GPUClassSpec)
    assert selectors.takes_profile(wanted, "1g.10gb", 9984 * quantities.MEBIBYTE) is taken
