# SPDX-License-Identifier: Apache-2.0
"""What a claim comes to on a node where nothing fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scenario.dra.conftest import World
from tests.scenario.dra.standins import device

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import deviceconfigs, resources
from gpudeck.cdi import hooks


async def test_the_kubelet_learns_versions_and_socket_of_the_plugin(world: World) -> None:
    info = world.kubelet.info
    assert (info.type, info.name) == ("DRAPlugin", "gpu.deckhouse.io")
    assert info.supported_versions[:2] == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
    assert info.endpoint == str(world.data_dir / "dra.sock")


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_claim_becomes_a_device_and_goes_again(world: World, version: str) -> None:
    claim = world.claim("c", 1)
    answer = (await world.kubelet.prepare(claim, version=version))["uid-c"]
    (given,) = answer.devices
    assert answer.error == ""
    assert (given.pool_name, given.device_name) == ("node-0", device(1))
    assert list(given.request_names) == ["r0"]
    assert list(given.cdi_device_ids) == [
        f"k8s.gpu.deckhouse.io/claim=uid-c-{device(1)}",
        "gpu.deckhouse.io/metadata=uid-c_r0",
    ]
    (described,) = world.spec("c")["devices"]
    assert described["name"] == f"uid-c-{device(1)}"
    assert described["containerEdits"]["deviceNodes"][0]["hostPath"] == "/mnt/host/dev/nvidia1"
    assert world.spec("c")["containerEdits"]["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]
    assert world.states() == {"c": "PrepareCompleted"}
    assert await world.kubelet.unprepare(claim, version=version) == {"uid-c": ""}
    assert (world.specs(), world.states(), world.adapter.prepared) == ([], {}, set())


async def test_two_claims_of_a_pod_come_in_one_call(world: World) -> None:
    claims = world.claim("a", 0), world.claim("b", 2, 3)
    answer = await world.kubelet.prepare(*claims)
    names = {uid: [each.device_name for each in answer[uid].devices] for uid in answer}
    assert names == {"uid-a": [device(0)], "uid-b": [device(2), device(3)]}
    assert world.specs() == ["a", "b"]


async def test_a_shared_claim_is_prepared_once_for_all_its_pods(world: World) -> None:
    claim = world.claim("c", 0)
    first = await world.kubelet.prepare(claim)
    second = await world.kubelet.prepare(claim)
    assert first == second
    assert world.adapter.prepare_calls == 1


async def test_one_wrong_claim_does_not_stop_the_other(world: World) -> None:
    good, wrong = world.claim("good", 0), world.claim("wrong", 9)
    answer = await world.kubelet.prepare(good, wrong)
    assert answer["uid-good"].error == ""
    assert answer["uid-wrong"].error.startswith("CardNotFound: device gpu-0000-19-00-0")
    assert world.states() == {"good": "PrepareCompleted"}


async def test_a_subrequest_is_answered_by_its_main_request(world: World) -> None:
    claim = world.claim("c", 0, request="main/big")
    (given,) = (await world.kubelet.prepare(claim))["uid-c"].devices
    assert list(given.request_names) == ["main"]


async def test_results_of_other_drivers_are_not_ours(world: World) -> None:
    claim = world.claim("c", 0, driver="nic.example.com")
    answer = (await world.kubelet.prepare(claim))["uid-c"]
    assert (answer.error, list(answer.devices)) == ("", [])


async def test_a_claim_of_another_uid_is_refused(world: World) -> None:
    claim = world.claim("c", 0)
    asked = {"metadata": {**claim["metadata"], "uid": "uid-older"}}
    answer = await world.kubelet.prepare(asked)
    assert answer["uid-older"].error.startswith("ClaimReplaced: claim t/c")


async def test_unknown_configuration_is_refused_with_every_path(world: World) -> None:
    claim = world.claim("c", 0)
    parameters = {
        "apiVersion": deviceconfigs.API_VERSION,
        "kind": "GpuConfig",
        "sharing": {"strategy": "Fair"},
        "x": 1,
    }
    opaque = {"driver": "gpu.deckhouse.io", "parameters": parameters}
    claim["status"]["allocation"]["devices"]["config"] = [
        {"source": "FromClaim", "opaque": {"driver": "nic.example.com", "parameters": {"y": 1}}},
        {"source": "FromClaim", "opaque": opaque},
    ]
    world.api.put(resources.RESOURCE_CLAIM, claim)
    error = (await world.kubelet.prepare(claim))["uid-c"].error
    path = "status.allocation.devices.config[1].opaque.parameters"
    assert error.startswith("InvalidDeviceConfig: ")
    assert f"{path}.sharing.strategy" in error
    assert f"{path}.x" in error


async def test_a_refusal_of_the_adapter_reaches_the_pod_and_leaves_nothing(world: World) -> None:
    error = {"reason": "CardNotReady", "message": "0000:10:00.0: no driver", "retryable": True}
    world.adapter.refusals["0000:10:00.0"] = adapter_pb2.Error(**error)
    claim = world.claim("c", 0)
    assert (await world.kubelet.prepare(claim))["uid-c"].error == (
        "CardNotReady: 0000:10:00.0: no driver"
    )
    assert (world.states(), world.specs()) == ({}, [])
    world.adapter.refusals.clear()
    assert (await world.kubelet.prepare(claim))["uid-c"].error == ""


async def test_an_unknown_claim_is_unprepared_without_complaint(world: World) -> None:
    claim = {"metadata": {"name": "never", "namespace": "t", "uid": "uid-never"}}
    assert await world.kubelet.unprepare(claim) == {"uid-never": ""}


async def test_the_program_of_hooks_is_installed_by_its_checksum(stopped: World) -> None:
    (stopped.folder / "hook").write_bytes(b"#!/bin/sh\n")
    await stopped.start()
    await stopped.published(4)
    await stopped.kubelet.prepare(stopped.claim("c", 0))
    (hook,) = stopped.spec("c")["containerEdits"]["hooks"]
    assert hook["path"].startswith(str(stopped.data_dir / "bin/hook-"))
    assert Path(hook["path"]).read_bytes() == b"#!/bin/sh\n"


async def test_the_program_of_hooks_comes_back_if_somebody_removes_it(
    stopped: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "AGAIN_SECONDS", 0.1)
    (stopped.folder / "hook").write_bytes(b"#!/bin/sh\n")
    await stopped.start()
    (hook,) = (stopped.data_dir / "bin").iterdir()
    hook.unlink()
    await stopped.until(hook.exists)
    hook.unlink()
    hook.parent.rmdir()
    hook.parent.write_text("no folder")
    await stopped.until(lambda: "HookMissing" in stopped.events())
    await stopped.published(4)
    await stopped.kubelet.prepare(stopped.claim("c", 0))
    assert "hooks" not in stopped.spec("c")["containerEdits"]
    hook.parent.unlink()
    await stopped.until(hook.exists)
