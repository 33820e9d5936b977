# SPDX-License-Identifier: Apache-2.0
"""Which names pods may ask for, and which of them the webhook turns into claims."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.support import gpus

from gpudeck.api.core import Node
from gpudeck.api.resource import DeviceClass
from gpudeck.api.v1alpha1.gpuclass import GPUClass, mapped_name
from gpudeck.controller.admission import naming
from gpudeck.controller.admission.fleet import Fleet
from gpudeck.controller.gpuclass import deviceclass

OWN_AMOUNTS = {"devices": ["Share"], "share": {"memory": {"default": "8Gi"}}}


def names(*classes: dict[str, Any], served: bool = True) -> naming.Names:
    """The names after every class got its DeviceClass, from a server that may drop the name."""
    found = {each["metadata"]["name"]: msgspec.convert(each, GPUClass) for each in classes}
    device_classes: dict[str, DeviceClass] = {}
    for name, each in found.items():
        resource = mapped_name(each) if served else ""
        device_classes[name] = deviceclass.wanted(each, resource)
    return naming.names_of(found, device_classes)


def test_a_class_that_the_scheduler_serves_is_left_to_it() -> None:
    found = names(gpus.gpu_class("h100"))
    assert list(found.asked) == ["gpu.deckhouse.io/h100"]
    assert not found.rewritten


def test_shares_with_amounts_of_their_own_are_rewritten() -> None:
    found = names(gpus.gpu_class("quarter", **OWN_AMOUNTS))
    assert list(found.rewritten) == ["gpu.deckhouse.io/quarter"]


def test_every_name_is_rewritten_where_the_server_drops_it() -> None:
    found = names(gpus.gpu_class("h100"), served=False)
    assert list(found.rewritten) == ["gpu.deckhouse.io/h100"]


def test_a_name_that_device_plugins_may_offer_is_left_to_them() -> None:
    """On Kubernetes 1.34 and 1.35 a pod that was rewritten could not run on their nodes."""
    gpu = gpus.gpu_class("gpu", extendedResourceName="nvidia.com/gpu")
    both = {each["metadata"]["name"]: msgspec.convert(each, GPUClass)
            for each in (gpu, gpus.gpu_class("h100"))}  # fmt: skip
    device_classes = {name: deviceclass.wanted(each, "") for name, each in both.items()}
    fleet = Fleet(default_mode="device-plugin")

    def rewritten() -> list[str]:
        found = naming.names_of(both, device_classes, may_be_plugins=fleet.may_be_plugins)
        assert sorted(found.asked) == ["gpu.deckhouse.io/h100", "nvidia.com/gpu"]
        return sorted(found.rewritten)

    def in_mode(mode: str) -> Node:
        return msgspec.convert(
            {"metadata": {"labels": {"gpu.deckhouse.io/active-mode": mode}}}, Node
        )

    assert rewritten() == ["gpu.deckhouse.io/h100"], "no node yet: the default counts"
    fleet.node_changed("a", in_mode("dra"))
    assert rewritten() == ["gpu.deckhouse.io/h100", "nvidia.com/gpu"]
    fleet.node_changed("b", in_mode("device-plugin"))
    assert rewritten() == ["gpu.deckhouse.io/h100"]
    fleet.node_changed("b", None)
    assert rewritten() == ["gpu.deckhouse.io/h100", "nvidia.com/gpu"]


def test_a_class_without_a_name_or_without_its_device_class_is_asked_for_by_claims_alone() -> None:
    nameless = gpus.gpu_class("nameless", extendedResourceName="")
    assert not names(nameless).asked
    waiting = {"h100": msgspec.convert(gpus.gpu_class("h100"), GPUClass)}
    assert not naming.names_of(waiting, {}).asked


def test_of_two_classes_of_one_name_the_older_has_it() -> None:
    old = gpus.gpu_class("a", created="2026-01-01T00:00:00Z", extendedResourceName="x.y/z")
    new = gpus.gpu_class("b", created="2026-02-01T00:00:00Z", extendedResourceName="x.y/z")
    assert names(new, old).asked["x.y/z"].metadata.name == "a"


def test_a_device_class_of_somebody_else_is_not_judged_by_the_class_of_its_name() -> None:
    classes = {
        each: msgspec.convert(gpus.gpu_class(each), GPUClass) for each in ("ours", "theirs", "new")
    }
    foreign = msgspec.convert({"metadata": {"name": "theirs"}, "spec": {}}, DeviceClass)
    device_classes = {"ours": deviceclass.wanted(classes["ours"], ""), "theirs": foreign}
    assert list(naming.names_of(classes, device_classes).classes) == ["ours"]


def test_of_too_many_classes_the_oldest_are_named() -> None:
    found = names(
        gpus.gpu_class("new", created="2026-02-01T00:00:00Z", **OWN_AMOUNTS),
        gpus.gpu_class("old", created="2026-01-01T00:00:00Z", **OWN_AMOUNTS),
    )
    room = naming.written("old") + naming.written("gpu.deckhouse.io/old")
    for most, kept in ((2 * room, ["new", "old"]), (2 * room - 1, ["old"]), (room - 1, [])):
        fitting = naming.fitting(found, most)
        assert sorted(fitting.classes) == kept
        for each in (fitting.asked, fitting.rewritten):
            assert sorted(each) == [f"gpu.deckhouse.io/{name}" for name in kept]
