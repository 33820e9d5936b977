# SPDX-License-Identifier: Apache-2.0
"""The CDI file that names every unit of a node."""

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests.unit.deviceplugin.nodes import READY, card, offer

from gpudeck import errors
from gpudeck.deviceplugin import answering, offering, specs
from gpudeck.host.root import Root
from gpudeck.pluginconfig.model import IdStrategy, ListStrategy
from gpudeck.vendors import contract
from gpudeck.vendors.simulated.cards import SimulatedVendor


class Vendor(SimulatedVendor):
    """Lacks the device node of one card, and keeps limits of memory."""

    def inject(
        self, uses: Sequence[contract.Use], *, driver_version: str, hook_path: str
    ) -> contract.Injection:
        if any(use.card.minor == 1 for use in uses):
            raise errors.UnavailableError("/dev/simulated1 is missing", reason="DeviceNodeMissing")
        found = super().inject(uses, driver_version=driver_version, hook_path=hook_path)
        limited = tuple(
            msgspec.structs.replace(each, limits_memory=use.share is not None)
            for each, use in zip(found.uses, uses, strict=True)
        )
        return msgspec.structs.replace(found, uses=limited)


def find(
    tmp_path: Path,
    offered: offering.Offer,
    before: bytes | None = None,
    way: answering.Way | None = None,
    driver: contract.DriverState = READY,
) -> tuple[specs.Found, dict[str, Any]]:
    found = specs.find(
        Vendor(contract.VendorSettings(host_root=str(tmp_path))),
        offered,
        way or answering.Way(),
        driver=driver,
        hook_path="",
        root=Root(tmp_path),
        before=before,
    )
    return found, {name: json.loads(content) for name, content in found.files}


def names(files: dict[str, Any]) -> list[str]:
    file = files["k8s.device-plugin.nvidia.com-gpu.json"]
    assert file["kind"] == "k8s.device-plugin.nvidia.com/gpu"
    return [each["name"] for each in file["devices"]]


def test_a_card_without_its_node_costs_one_card(tmp_path: Path) -> None:
    found, files = find(tmp_path, offer("", card(0), card(1), card(2)))
    assert names(files) == ["GPU-0", "GPU-2"]
    assert found.ready.named == ("GPU-0", "GPU-2")
    assert dict(found.ready.unready) == {"GPU-1": "/dev/simulated1 is missing"}
    assert [each.reason for each in found.problems] == ["DeviceNodeMissing"]


LIMITED = "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 4, memoryLimit: %s}]}}"


def test_a_limited_replica_has_a_name_with_its_amount(tmp_path: Path) -> None:
    offered = offer(LIMITED % "equal", card(0))
    _, files = find(tmp_path, offered)
    assert names(files) == ["GPU-0", "GPU-0-10240Mi"]
    unit = offered.resources[0].devices[0].unit
    part = answering.part(offered.resources[0], unit)
    assert answering.cdi_name(unit, answering.Way(), part) == "GPU-0-10240Mi"


def test_names_that_pods_were_given_stay_while_their_card_is_there(tmp_path: Path) -> None:
    first, _ = find(tmp_path, offer(LIMITED % "5Gi", card(0), card(2)))
    _, files = find(tmp_path, offer("", card(0)), before=dict(first.files).popitem()[1])
    assert names(files) == ["GPU-0", "GPU-0-5120Mi"]


def test_names_stay_while_it_is_not_known_of_which_card_they_are(tmp_path: Path) -> None:
    """At a start a card that hangs, or takes long, has not been read yet."""
    first, _ = find(tmp_path, offer("", card(0), card(2)))
    unread = msgspec.structs.replace(card(2), reading=None)
    _, files = find(tmp_path, offer("", card(0), unread), before=dict(first.files).popitem()[1])
    assert names(files) == ["GPU-0", "GPU-2"]


MIXED = "flags: {migStrategy: mixed}"


def test_names_stay_when_the_config_no_longer_offers_what_they_name(tmp_path: Path) -> None:
    """A container of a pod with a partition starts again after the strategy became `none`."""
    split = card(0, profiles=("1g.2gb", "1g.2gb"))
    _, whole = find(tmp_path, offer("", split))
    first, _ = find(tmp_path, offer(MIXED, split))
    before = dict(first.files).popitem()[1]
    _, files = find(tmp_path, offer("", split), before=before)
    assert names(files) == ["MIG-0-0", "MIG-0-1", "GPU-0"]
    before = json.dumps(whole["k8s.device-plugin.nvidia.com-gpu.json"]).encode()
    _, files = find(tmp_path, offer(MIXED, split), before=before)
    assert names(files) == ["GPU-0", "MIG-0-0", "MIG-0-1"]


def test_names_stay_when_devices_are_named_another_way(tmp_path: Path) -> None:
    split = card(2, profiles=("1g.2gb",))
    first, _ = find(tmp_path, offer(MIXED, split))
    before = dict(first.files).popitem()[1]
    by_index = answering.Way(ids=IdStrategy.INDEX)
    second, files = find(tmp_path, offer(MIXED, split), before, by_index)
    assert names(files) == ["MIG-2-0", "0:0"]
    _, files = find(tmp_path, offer(MIXED, split), dict(second.files).popitem()[1])
    assert sorted(names(files)) == ["0:0", "MIG-2-0"]
    _, files = find(tmp_path, offer("", card(3)), dict(second.files).popitem()[1])
    assert names(files) == ["GPU-3"]


def test_while_the_driver_is_away_files_stay_and_its_own_words_are_the_reason(
    tmp_path: Path,
) -> None:
    away = contract.DriverState(ready=False, reason="DriverHung", message="It hangs.")
    found, files = find(tmp_path, offer("", card(0)), driver=away)
    assert (files, found.problems) == ({}, ())
    assert dict(found.ready.unready) == {"GPU-0": "It hangs."}


def test_a_broken_file_is_made_anew(tmp_path: Path) -> None:
    _, files = find(tmp_path, offer("", card(0)), before=b"{")
    assert names(files) == ["GPU-0"]


def test_partitions_are_named_by_their_uuid(tmp_path: Path) -> None:
    _, files = find(tmp_path, offer("flags: {migStrategy: mixed}", card(0, profiles=("1g.2gb",))))
    assert names(files) == ["MIG-0-0"]


def test_a_partitioned_card_that_is_offered_whole_is_named(tmp_path: Path) -> None:
    _, files = find(tmp_path, offer("", card(0, profiles=("1g.2gb",))))
    assert names(files) == ["GPU-0"]


def test_a_replica_by_mps_has_an_equal_part_of_memory_and_cores(tmp_path: Path) -> None:
    offered = offer("sharing: {mps: {resources: [{name: gpu, replicas: 4}]}}", card(0))
    _, files = find(tmp_path, offered)
    assert names(files) == ["GPU-0", "GPU-0-mps-10240Mi-25"]


def test_cards_that_are_shared_otherwise_than_others_have_parts_of_their_own(
    tmp_path: Path,
) -> None:
    entries = "{name: gpu, replicas: 2, devices: [0]}, {name: gpu, replicas: 4, devices: [1]}"
    offered = offer(f"sharing: {{mps: {{resources: [{entries}]}}}}", card(0), card(2))
    _, files = find(tmp_path, offered)
    assert names(files) == ["GPU-0", "GPU-0-mps-20480Mi-50", "GPU-2", "GPU-2-mps-10240Mi-25"]


def test_a_limit_that_no_hook_can_keep_is_said(tmp_path: Path) -> None:
    offered = offer(LIMITED % "5Gi", card(0))
    found, _ = find(tmp_path, offered)
    assert [each.reason for each in found.problems] == ["MemoryLimitNotKept"]
    assert "cdi-cri" in found.problems[0].message
    cdi = answering.Way(strategies=(ListStrategy.CDI_CRI,))
    assert find(tmp_path, offered, way=cdi)[0].problems == ()


def test_without_a_channel_that_is_required_no_card_is_given(tmp_path: Path) -> None:
    way = answering.Way(imex_channels=(0,))
    assert find(tmp_path, offer("", card(0)), way=way)[0].ready.named == ("GPU-0",)
    way = answering.Way(imex_channels=(0,), imex_required=True)
    found, _ = find(tmp_path, offer("", card(0)), way=way)
    assert found.ready.named == ()
    assert "channel0" in dict(found.ready.unready)["GPU-0"]
    assert [each.reason for each in found.problems] == ["ImexChannelMissing"]


def test_a_feature_brings_its_files_and_is_said_where_the_node_lacks_it(tmp_path: Path) -> None:
    way = answering.Way(strategies=(ListStrategy.CDI_CRI,), features=("gds", "gdrcopy"))
    found, files = find(tmp_path, offer("", card(0)), way=way)
    assert list(files) == ["k8s.device-plugin.nvidia.com-gpu.json"]
    assert [each.reason for each in found.problems] == ["FeatureMissing", "FeatureMissing"]
    assert found.problems[0].message.startswith(
        "flags.gdsEnabled: the node has no /dev/nvidia-fs*,"
    )
    (tmp_path / "dev").mkdir()
    (tmp_path / "run/udev").mkdir(parents=True)
    for name in ("nvidia-fs0", "gdrdrv"):
        os.mknod(tmp_path / "dev" / name, 0o600 | stat.S_IFCHR, os.makedev(240, 0))
    found, files = find(tmp_path, offer("", card(0)), way=way)
    assert found.problems == ()
    assert found.ready.extras == (
        "k8s.device-plugin.nvidia.com/gds=all",
        "k8s.device-plugin.nvidia.com/gdrcopy=all",
    )
    (device,) = files["k8s.device-plugin.nvidia.com-gds.json"]["devices"]
    assert [each["path"] for each in device["containerEdits"]["deviceNodes"]] == ["/dev/nvidia-fs0"]
    assert [each["containerPath"] for each in device["containerEdits"]["mounts"]] == ["/run/udev"]
    (device,) = files["k8s.device-plugin.nvidia.com-gdrcopy.json"]["devices"]
    assert "mounts" not in device["containerEdits"]
