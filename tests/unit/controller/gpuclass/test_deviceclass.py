# SPDX-License-Identifier: Apache-2.0
"""The DeviceClass of a class: what it is, whose it is, and whether it drifted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support import gpus

from gpudeck.api import deviceconfigs
from gpudeck.api.resource import DeviceClass
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.controller.gpuclass import deviceclass


def target(resource: str = "gpu.deckhouse.io/h100") -> DeviceClass:
    raw = gpus.gpu_class("h100", vendor="nvidia")
    raw["metadata"]["uid"] = "u"
    return deviceclass.wanted(msgspec.convert(raw, GPUClass), resource)


def written(**changes: Any) -> DeviceClass:
    raw = msgspec.to_builtins(target())
    for path, value in changes.items():
        *folders, last = path.split("__")
        place = raw
        for folder in folders:
            place = place[folder]
        place[last] = value
    return msgspec.json.decode(msgspec.json.encode(raw), type=DeviceClass)


def test_it_has_the_name_the_owner_and_the_selector_of_its_class() -> None:
    found = msgspec.to_builtins(target())
    assert found["metadata"] == {
        "name": "h100",
        "labels": {"app.kubernetes.io/managed-by": "gpudeck"},
        "ownerReferences": [
            {
                "apiVersion": "gpu.deckhouse.io/v1alpha1",
                "kind": "GPUClass",
                "name": "h100",
                "uid": "u",
                "controller": True,
            }
        ],
    }
    assert found["spec"]["extendedResourceName"] == "gpu.deckhouse.io/h100"
    (selector,) = found["spec"]["selectors"]
    assert selector["cel"]["expression"].startswith('device.driver == "gpu.deckhouse.io"')


def test_without_an_extended_resource_name_it_has_none() -> None:
    assert "extendedResourceName" not in msgspec.to_builtins(target(""))["spec"]


def test_what_was_written_has_not_drifted_and_foreign_labels_are_no_drift() -> None:
    both = {"app.kubernetes.io/managed-by": "gpudeck", "team": "a"}
    assert not deviceclass.has_drifted(written(), target())
    assert not deviceclass.has_drifted(written(metadata__labels=both), target())


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata__labels": {}},
        {"metadata__ownerReferences": []},
        {"spec__selectors": []},
        {"spec__selectors": [{"cel": {"expression": "true"}}]},
        {"spec__extendedResourceName": "other.example.com/gpu"},
        {"spec__config": [{"opaque": {"driver": "x", "parameters": {}}}]},
    ],
)
def test_every_foreign_edit_is_drift(changes: dict[str, Any]) -> None:
    assert deviceclass.has_drifted(written(**changes), target())


def test_it_is_ours_by_label_or_by_owner_and_else_not() -> None:
    assert deviceclass.is_ours(written(metadata__labels={}))
    assert deviceclass.is_ours(written(metadata__ownerReferences=[]))
    assert not deviceclass.is_ours(written(metadata__labels={}, metadata__ownerReferences=[]))


def shared(**share: Any) -> DeviceClass:
    raw = gpus.gpu_class("s", devices=["Share"], share=share)
    return deviceclass.wanted(msgspec.convert(raw, GPUClass), "")


def test_a_class_of_shares_tells_the_driver_how_to_share_and_the_driver_takes_it() -> None:
    spec = shared(interval="Short", enforce="Report").spec
    assert spec is not None
    (config,) = spec.config or []
    assert config.opaque is not None
    deviceconfigs.check([(config.opaque, "spec.config[0]")])
    found = deviceconfigs.decode(config.opaque.parameters)
    assert found == deviceconfigs.DeviceConfig("TimeSlicing", "Short", "Report")


def test_the_order_of_keys_in_configuration_is_no_drift_and_another_value_is() -> None:
    raw = msgspec.to_builtins(msgspec.json.decode(msgspec.json.encode(shared())))
    parameters = raw["spec"]["config"][0]["opaque"]["parameters"]
    raw["spec"]["config"][0]["opaque"]["parameters"] = dict(reversed(parameters.items()))
    same = msgspec.json.decode(msgspec.json.encode(raw), type=DeviceClass)
    assert not deviceclass.has_drifted(same, shared())
    assert deviceclass.has_drifted(same, shared(interval="Long"))


@pytest.mark.parametrize(
    ("share", "name"),
    [
        ({}, "gpu.deckhouse.io/s"),
        ({"memory": {"max": "10Gi"}}, "gpu.deckhouse.io/s"),
        ({"memory": {"default": "10Gi"}}, ""),
        ({"cores": {"default": 20}}, ""),
    ],
)
def test_only_shares_of_the_node_s_default_amounts_have_an_extended_resource(
    share: dict[str, Any], name: str
) -> None:
    raw = gpus.gpu_class("s", devices=["Share"], share=share)
    assert gpuclass.mapped_name(msgspec.convert(raw, GPUClass)) == name


def test_amounts_of_shares_keep_no_other_kind_of_the_class_out() -> None:
    """By the resource as by a claim, to which the chart's policy adds nothing either."""
    share = {"memory": {"default": "40Gi"}, "cores": {"default": 20}}
    raw = gpus.gpu_class("s", devices=["Whole", "Share"], share=share)
    assert gpuclass.mapped_name(msgspec.convert(raw, GPUClass)) == "gpu.deckhouse.io/s"
