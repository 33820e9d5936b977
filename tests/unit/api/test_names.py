# SPDX-License-Identifier: Apache-2.0
"""Names and label values, from the text that makers and people really write."""

from __future__ import annotations

import re

import pytest

from gpudeck.api import names
from gpudeck.devices.identities import PciAddress

_LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_ADDRESS = PciAddress.parse("0000:1b:00.0")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NVIDIA TITAN X (Pascal)", "NVIDIA-TITAN-X-Pascal"),
        ("  Quadro   P2000 ", "Quadro-P2000"),
        ("Orin (nvgpu)", "Orin-nvgpu"),
        ("Model 7, rev. B (2U)\n", "Model-7-rev.-B-2U"),
        ("((()))", ""),
        ("显卡", ""),
    ],
)
def test_label_values_keep_what_kubernetes_allows(text: str, value: str) -> None:
    assert names.label_value(text) == value


@pytest.mark.parametrize(
    "text", ["x" * 64, "-" * 100, "a." * 60, "(a) " * 40, "a" * 53 + "-" * 20 + "b"]
)
def test_every_label_value_is_valid(text: str) -> None:
    value = names.label_value(text)
    assert len(value) <= 63
    assert _LABEL.fullmatch(value)


@pytest.mark.parametrize(
    ("product", "label"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("H100 SXM5 80GB", "h100-sxm5-80gb"),
        ("Tesla V100-SXM2-32GB", "tesla-v100-sxm2-32gb"),
        ("NVIDIA GB10", "gb10"),
        ("MetaX C500", "c500"),
        ("NVIDIA", ""),
    ],
)
def test_device_labels_leave_the_maker_out(product: str, label: str) -> None:
    assert names.device_label(product) == label


def test_a_card_is_named_by_its_node_and_place() -> None:
    assert names.physical_gpu_name("node-0", _ADDRESS) == "node-0-0000-1b-00-0"


def test_a_long_node_name_is_cut_and_hashed_and_stays_unique() -> None:
    first, second = (("a" * 50 + ".") * 4 + "b" * 48 + end for end in "xy")
    made = [names.physical_gpu_name(node, _ADDRESS) for node in (first, second, "c" * 237)]
    assert made[0] != made[1]
    assert all(len(name) <= 253 and _SUBDOMAIN.fullmatch(name) for name in made)
    assert all(name.endswith("-0000-1b-00-0") for name in made)


def test_names_of_nodes_that_begin_alike_are_told_apart() -> None:
    made = {f"{'a' * 80}{first}.{'b' * 70}-{second}" for first in range(60) for second in range(60)}
    assert len({names.node_label(each) for each in made}) == len(made)
    assert all(len(names.node_label(each)) <= 63 for each in made)
    assert names.node_label("a" * 63) == "a" * 63
    assert names.node_label("a" * 64) == f"{'a' * 52}-{names.digest('a' * 64)}"


def test_a_device_name_leads_back_to_its_card() -> None:
    device = names.gpu_device_name(_ADDRESS)
    assert device == "gpu-0000-1b-00-0"
    assert names.address_of_device(device) == _ADDRESS


def test_names_of_parts_lead_back_to_card_and_place() -> None:
    device = names.mig_device_name(_ADDRESS, "1g.10gb+me", 20, 6)
    assert device == "mig-0000-1b-00-0-1g10gbme-20-6"
    assert names.parse_device(device) == names.DeviceName(
        "mig", _ADDRESS, 20, 6, profile="1g10gbme"
    )
    shares = [names.share_device_name(_ADDRESS, mps=mps) for mps in (False, True)]
    assert shares == ["share-0000-1b-00-0", "share-0000-1b-00-0-mps"]
    assert [names.parse_device(each) for each in shares] == [
        names.DeviceName("share", _ADDRESS, mps=mps) for mps in (False, True)
    ]
    assert names.address_of_device(device) == _ADDRESS


@pytest.mark.parametrize(
    "device",
    [
        "mig-0000-1b-00-0",
        "mig-0000-1b-00-0-1g10gb-19",
        "gpu-0000-1b-00-0-1g10gb-19-0",
        "gpu-0000-1b-00-0-mps",
        "gpu-",
        "gpu-0",
        "0000-1b-00-0",
    ],
)
def test_foreign_device_names_lead_nowhere(device: str) -> None:
    assert names.address_of_device(device) is None


def test_attribute_text_has_at_most_64_characters() -> None:
    assert names.attribute_text(" " + "x" * 70) == "x" * 64


def test_the_suffix_of_a_label_value_stays_whole() -> None:
    assert names.label_value("Tesla T4", suffix="-SHARED") == "Tesla-T4-SHARED"
    assert names.label_value("(?)", suffix="-MIG-INVALID") == "MIG-INVALID"
    long = names.label_value("N" * 80, suffix="-SHARED")
    assert len(long) == 63
    assert long.endswith("-SHARED")
    assert len(names.label_value("N" * 80, length=53)) == 53
