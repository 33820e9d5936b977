# SPDX-License-Identifier: Apache-2.0
"""The kubelet's file of devices, as kubelet 1.37 writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck.kubelet import checkpoints

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


def test_devices_are_read_by_resource(tmp_path: Path) -> None:
    (tmp_path / checkpoints.FILE).write_text(
        '{"Data":{"PodDeviceEntries":['
        f'{{"PodUID":"a","ContainerName":"i","ResourceName":"{GPU}",'
        '"DeviceIDs":{"0":["GPU-0"],"1":["GPU-1"]},"AllocResp":"CgA="},'
        f'{{"PodUID":"b","ContainerName":"c","ResourceName":"{GPU}","DeviceIDs":{{"-1":["GPU-2"]}},'
        '"AllocResp":null},'
        f'{{"PodUID":"b","ContainerName":"d","ResourceName":"{SHARED}",'
        '"DeviceIDs":{"0":["GPU-1::3"]}},{"ResourceName":"example.com/nic","DeviceIDs":null}'
        '],"RegisteredDevices":{"nvidia.com/gpu":["GPU-0"]}},"Checksum":2123}'
    )
    assert checkpoints.untold(tmp_path, {}, concerns=bool) == {
        GPU: frozenset({"GPU-0", "GPU-1", "GPU-2"}),
        SHARED: frozenset({"GPU-1::3"}),
    }
    told = {GPU: {"GPU-0": "t/pod"}, SHARED: {"GPU-1::3": "t/pod"}}
    found = checkpoints.untold(tmp_path, told, concerns=lambda each: each != "GPU-2")
    assert found == {GPU: frozenset({"GPU-1"})}
    assert {uid: ids for uid, ids in checkpoints.by_pod(tmp_path).items() if ids} == {
        "a": {"GPU-0", "GPU-1"},
        "b": {"GPU-2", "GPU-1::3"},
    }


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"Data":null}', '{"Data":{}}', "{}"])
def test_what_is_not_understood_tells_nothing(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / checkpoints.FILE).write_text(content)
    assert checkpoints.untold(tmp_path, {}, concerns=bool) == {}
    assert checkpoints.by_pod(tmp_path) == {}
