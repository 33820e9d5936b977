# SPDX-License-Identifier: Apache-2.0
"""What a claim's containers are told of its devices, from Prepare to Unprepare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.scenario.dra.conftest import World
from tests.scenario.dra.standins import device, partition, partitionable

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import resources

FOLDER = "/var/run/kubernetes.io/dra-device-attributes"


def mounts(world: World, name: str) -> dict[str, str]:
    """Paths on the node by paths in the container."""
    return {
        each["containerPath"]: each["hostPath"]
        for one in world.metadata_spec(name)["devices"]
        for each in one["containerEdits"]["mounts"]
    }


def told(world: World, name: str) -> dict[str, Any]:
    """The first object of the one file of a claim."""
    (path,) = mounts(world, name).values()
    found: dict[str, Any] = json.loads(Path(path).read_text().splitlines()[0])
    return found


def attributes(world: World, name: str) -> dict[str, Any]:
    (request,) = told(world, name)["requests"]
    found: dict[str, Any] = request["devices"][0]["attributes"]
    return found


def left(world: World) -> list[str]:
    """Every file of the kind, of any claim."""
    return sorted(
        path.name
        for folder in (world.data_dir / "dra-device-metadata", world.cdi_root)
        for path in folder.glob("*")
        if "k8s." not in path.name
    )


async def test_a_container_is_told_what_the_resource_slice_says_of_its_card(world: World) -> None:
    answer = (await world.kubelet.prepare(world.claim("c", 1)))["uid-c"]
    assert "gpu.deckhouse.io/metadata=uid-c_r0" in answer.devices[0].cdi_device_ids
    assert list(mounts(world, "c")) == [
        f"{FOLDER}/resourceclaims/c/r0/gpu.deckhouse.io-metadata.json"
    ]
    assert told(world, "c")["metadata"] == {
        "name": "c",
        "namespace": "t",
        "uid": "uid-c",
        "generation": 1,
    }
    (published,) = [each for each in world.devices() if each["name"] == device(1)]
    assert attributes(world, "c") == {**published["attributes"], "memory": {"int": 80 << 30}}


async def test_a_claim_of_a_template_is_found_by_the_name_in_the_pod(world: World) -> None:
    claim = world.claim("c", 1)
    claim["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "mine"}
    world.api.put(resources.RESOURCE_CLAIM, claim)
    await world.kubelet.prepare(claim)
    assert list(mounts(world, "c")) == [
        f"{FOLDER}/resourceclaimtemplates/mine/r0/gpu.deckhouse.io-metadata.json"
    ]
    assert told(world, "c")["podClaimName"] == "mine"


async def test_every_request_brings_its_file_once(world: World) -> None:
    claim = world.claim("c", 1, 2)
    results = claim["status"]["allocation"]["devices"]["results"]
    results.append({**results[0], "device": device(3)})
    world.api.put(resources.RESOURCE_CLAIM, claim)
    answer = (await world.kubelet.prepare(claim))["uid-c"]
    given = [
        [each for each in one.cdi_device_ids if "/metadata=" in each] for one in answer.devices
    ]
    assert given == [
        ["gpu.deckhouse.io/metadata=uid-c_r0"],
        ["gpu.deckhouse.io/metadata=uid-c_r1"],
        [],
    ]
    assert len(mounts(world, "c")) == 2


async def test_a_chosen_alternative_is_told_by_name_and_filed_under_its_request(
    world: World,
) -> None:
    answer = (await world.kubelet.prepare(world.claim("c", 0, request="main/big")))["uid-c"]
    assert "gpu.deckhouse.io/metadata=uid-c_main" in answer.devices[0].cdi_device_ids
    assert told(world, "c")["requests"][0]["name"] == "main/big"


async def test_admin_access_is_told_as_well(world: World) -> None:
    await world.kubelet.prepare(world.claim("c", 0))
    await world.kubelet.prepare(world.claim("watcher", 0, adminAccess=True))
    assert attributes(world, "watcher") == attributes(world, "c")


async def test_a_shared_claim_is_told_the_same_again_whatever_was_lost(world: World) -> None:
    claim = world.claim("c", 1)
    first = await world.kubelet.prepare(claim)
    path = Path(*mounts(world, "c").values())
    before = path.read_bytes()
    path.unlink()
    (world.cdi_root / "gpu.deckhouse.io-metadata_uid-c.json").write_text("{")
    await world.adapter.stop()
    await world.restart()
    assert await world.kubelet.prepare(claim) == first
    assert Path(*mounts(world, "c").values()).read_bytes() == before
    assert world.adapter.prepare_calls == 1


async def test_nothing_is_left_of_a_claim_that_is_given_back(world: World) -> None:
    claims = world.claim("a", 0), world.claim("b", 1, 2)
    await world.kubelet.prepare(*claims)
    assert len(left(world)) == 5
    await world.kubelet.unprepare(*claims)
    assert left(world) == []


async def test_nothing_is_left_of_a_claim_that_is_refused(world: World) -> None:
    error = adapter_pb2.Error(reason="CardNotReady", message="no driver", retryable=True)
    world.adapter.refusals["0000:10:00.0"] = error
    await world.kubelet.prepare(world.claim("c", 0))
    assert left(world) == []


async def test_a_partition_that_cannot_be_removed_yet_is_told_no_more(stopped: World) -> None:
    stopped.adapter.show(map(partitionable, range(4)))
    await stopped.start()
    claim = stopped.claim("c", 1, device=partition(1, 2))
    await stopped.until(stopped.devices)
    await stopped.kubelet.prepare(claim)
    assert attributes(stopped, "c")["profile"] == {"string": "1g.20gb"}
    stopped.adapter.is_stubborn = True
    await stopped.kubelet.unprepare(claim)
    assert (stopped.states(), left(stopped)) == ({"c": "Released"}, [])


async def test_what_an_earlier_boot_left_is_removed_at_the_start(world: World) -> None:
    await world.kubelet.prepare(world.claim("c", 1))
    await world.stop()
    world.boot("boot-2")
    await world.start()
    assert left(world) == []


async def test_a_claim_whose_pod_runs_on_is_told_again_when_the_checkpoint_is_lost(
    world: World,
) -> None:
    claim = world.claim("c", 1)
    first = await world.kubelet.prepare(claim)
    before = told(world, "c")
    await world.stop()
    world.checkpoint.write_text("{")
    await world.start()
    assert told(world, "c") == before
    assert await world.kubelet.prepare(claim) == first
    assert told(world, "c") == before


async def test_a_newer_driver_is_told_to_the_next_pod_of_the_claim(world: World) -> None:
    claim = world.claim("c", 1)
    await world.kubelet.prepare(claim)
    cards = list(world.adapter.cards)
    cards[1].driver.version = "590.1.2"
    world.adapter.show(cards)
    await world.until(
        lambda: any(
            each["attributes"]["driverVersion"] == {"version": "590.1.2"}
            for each in world.devices()
        )
    )
    await world.kubelet.prepare(claim)
    assert attributes(world, "c")["driverVersion"] == {"version": "590.1.2"}


async def test_a_claim_that_is_allocated_anew_is_told_of_its_new_card_alone(world: World) -> None:
    await world.kubelet.prepare(world.claim("c", 1, 2))
    await world.kubelet.prepare(world.claim("c", 3, request="main/big"))
    assert left(world) == ["gpu.deckhouse.io-metadata_uid-c.json", "uid-c_main.json"]
    (request,) = told(world, "c")["requests"]
    assert (request["name"], request["devices"][0]["name"]) == ("main/big", device(3))


async def test_a_name_that_would_lead_out_of_the_folder_is_refused(world: World) -> None:
    claim = world.claim("c", 1)
    claim["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "../../../etc"}
    world.api.put(resources.RESOURCE_CLAIM, claim)
    error = (await world.kubelet.prepare(claim))["uid-c"].error
    assert error.startswith(
        "NameInvalid: metadata.annotations[resource.kubernetes.io/pod-claim-name]: '../../../etc'"
    )
    assert (world.states(), left(world), world.adapter.prepared) == ({}, [], set())


@pytest.mark.parametrize("begun_with", [False, True])
async def test_the_setting_decides_about_new_claims_alone(stopped: World, begun_with: bool) -> None:
    stopped.device_metadata = begun_with
    await stopped.start()
    first = await stopped.kubelet.prepare(stopped.claim("c", 1))
    stopped.device_metadata = not begun_with
    await stopped.restart()
    assert await stopped.kubelet.prepare(stopped.claim("c", 1)) == first
    assert bool(left(stopped)) is begun_with
    await stopped.kubelet.unprepare(stopped.claim("c", 1))
    assert left(stopped) == []
