# SPDX-License-Identifier: Apache-2.0
"""Taking a card out of use and giving it back, as DeviceTaintRules that a server holds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support import gpus, make
from tests.support.apiserver import ApiServer

from gpudeck.api import labels
from gpudeck.api.resources import DEVICE_TAINT_RULE, PHYSICAL_GPU
from gpudeck.cli.main import main

NAME = "node-0-0000-1b-00-0"
UUID = "GPU-12345678-0000-0000-0000-000000000000"


def cuttable(address: str = "0000:1b:00.0", uuid: str = UUID) -> dict[str, Any]:
    """A card that can be cut in two halves or three parts."""
    gpu = gpus.gpu(address=address, currentState={"uuid": uuid})
    gpu["status"]["capabilities"]["partitionSupport"] = {
        "supported": True,
        "profiles": [
            profile("1g.10gb", 19, [(0, 1), (1, 1), (2, 1)]),
            profile("3g.40gb", 9, [(0, 4), (4, 4)]),
        ],
    }
    return gpu


def profile(name: str, number: int, places: list[tuple[int, int]]) -> dict[str, Any]:
    return {
        "name": name, "profileID": number, "memoryMiB": 1, "maxInstances": len(places),
        "slices": 1, "multiprocessors": 1,
        "placements": [{"start": start, "size": size} for start, size in places],
    }  # fmt: skip


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        make.put(server, make.node("node-0"))
        server.served.add((DEVICE_TAINT_RULE.group, DEVICE_TAINT_RULE.plural))
        server.put(PHYSICAL_GPU, cuttable())
        server.put(PHYSICAL_GPU, cuttable("0000:1c:00.0", "GPU-2"))
        yield server


async def run(server: ApiServer, *words: str) -> Result:
    """Run the command line in a thread: it has an event loop of its own."""
    given = [*words, "--kubeconfig", server.kubeconfig()]
    return await asyncio.to_thread(CliRunner().invoke, main, given)


async def done(server: ApiServer, *words: str) -> str:
    result = await run(server, *words)
    assert result.exit_code == 0, result.output
    return result.stdout


def tainted(server: ApiServer) -> dict[str, str]:
    """The effect on each device, all being of pool node-0."""
    found = {}
    for each in server.objects(DEVICE_TAINT_RULE).values():
        chosen, taint = each["spec"]["deviceSelector"], each["spec"]["taint"]
        assert (chosen["driver"], chosen["pool"]) == (labels.DRIVER, "node-0")
        assert taint["key"] == labels.CORDONED
        found[chosen["device"]] = taint["effect"]
    return found


ALL = {
    "gpu-0000-1b-00-0", "share-0000-1b-00-0", "share-0000-1b-00-0-mps",
    "mig-0000-1b-00-0-1g10gb-19-0", "mig-0000-1b-00-0-1g10gb-19-1",
    "mig-0000-1b-00-0-1g10gb-19-2", "mig-0000-1b-00-0-3g40gb-9-0",
    "mig-0000-1b-00-0-3g40gb-9-4",
}  # fmt: skip


@pytest.mark.parametrize("word", [NAME, UUID, UUID.lower(), "node-0/0", "node-0/0000:1b:00.0"])
async def test_a_card_is_cordoned_with_all_that_it_may_become(server: ApiServer, word: str) -> None:
    said = await done(server, "cordon", word, "--reason", "fan is loud")
    assert said == f"{NAME} is cordoned: new pods avoid it and its parts\n"
    assert tainted(server) == dict.fromkeys(ALL, "NoSchedule")
    for each in server.objects(DEVICE_TAINT_RULE).values():
        assert each["metadata"]["annotations"] == {labels.REASON: "fan is loud"}


async def test_cordon_is_repeatable_and_says_what_was_said_last(server: ApiServer) -> None:
    await done(server, "cordon", NAME, "--reason", "once")
    await done(server, "cordon", NAME)
    assert len(tainted(server)) == len(ALL)
    for each in server.objects(DEVICE_TAINT_RULE).values():
        assert not each["metadata"].get("annotations")
    await done(server, "cordon", NAME, "--evict")
    assert set(tainted(server).values()) == {"NoExecute"}
    await done(server, "cordon", NAME)
    assert set(tainted(server).values()) == {"NoSchedule"}


async def test_pods_that_hold_the_card_are_named(server: ApiServer) -> None:
    make.put(server, make.held(0, "first"))
    assert "those that hold it go on: default/first" in await done(server, "cordon", NAME)
    assert "will be ended: default/first" in await done(server, "cordon", NAME, "--evict")


async def test_uncordon_removes_the_rules_of_this_card_alone(server: ApiServer) -> None:
    await done(server, "cordon", NAME)
    await done(server, "cordon", "node-0/1")
    assert await done(server, "uncordon", UUID) == f"{NAME} is not cordoned any more\n"
    assert {device.split("-1g")[0][-7:] for device in tainted(server) if "1g" in device} == {
        "1c-00-0"
    }
    assert await done(server, "uncordon", NAME) == f"{NAME} was not cordoned\n"


async def test_a_card_that_is_gone_can_be_uncordoned_by_its_name(server: ApiServer) -> None:
    await done(server, "cordon", NAME)
    server.remove(PHYSICAL_GPU, NAME)
    await done(server, "uncordon", NAME)
    assert tainted(server) == {}


async def test_rules_of_others_stay_and_are_named(server: ApiServer) -> None:
    server.put(
        DEVICE_TAINT_RULE,
        {
            "metadata": {"name": "mine"},
            "spec": {
                "deviceSelector": {"pool": "node-0"},
                "taint": {"key": "example.com/x", "effect": "NoSchedule"},
            },
        },
    )
    result = await run(server, "uncordon", NAME)
    assert result.exit_code == 0
    assert "DeviceTaintRule mine, which is not gpudeck's, still taints it" in result.stderr
    assert set(server.objects(DEVICE_TAINT_RULE)) == {"mine"}


async def test_the_outcome_as_json(server: ApiServer) -> None:
    found = json.loads(await done(server, "cordon", NAME, "--json"))
    assert (found["card"], found["cordoned"], len(found["rules"])) == (NAME, True, len(ALL))


async def test_a_card_of_which_nothing_is_known_yet_is_said_to_be_so(server: ApiServer) -> None:
    server.put(
        PHYSICAL_GPU,
        {
            "metadata": {"name": "node-0-0000-1d-00-0", "labels": {labels.NODE: "node-0"}},
            "status": {"pciInfo": {"address": "0000:1d:00.0"}},
        },
    )
    result = await run(server, "cordon", "node-0/2")
    assert "repeat the command" in result.stderr
    assert set(tainted(server)) == {
        "gpu-0000-1d-00-0", "share-0000-1d-00-0", "share-0000-1d-00-0-mps",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("node-0-0000-1b-00-1", f"there is no card 'node-0-0000-1b-00-1'; did you mean {NAME}?"),
        ("x", "there is no card 'x'; `gpudeck get cards` lists them"),
        ("node-0/7", "node-0 has no card '7'; allowed: 0 to 1, or an address: 0000:1b:00.0"),
        ("node-9/0", "node 'node-9' has no card of gpudeck"),
    ],
)
async def test_what_is_no_card_is_refused_with_what_would_do(
    server: ApiServer, word: str, why: str
) -> None:
    result = await run(server, "cordon", word)
    assert result.exit_code == 1
    assert why in result.stderr
    assert tainted(server) == {}


async def test_a_partition_is_refused_with_the_name_of_its_card(server: ApiServer) -> None:
    gpu = cuttable()
    gpu["status"]["currentState"]["partitioning"] = {
        "mode": "Enabled",
        "partitions": [{"profile": "1g.10gb", "uuid": "MIG-7"}],
    }
    server.put(PHYSICAL_GPU, gpu)
    result = await run(server, "cordon", "MIG-7")
    assert result.exit_code == 2
    assert f"is a partition of {NAME}; a card is cordoned as a whole" in result.stderr


async def test_a_card_of_a_device_plugin_is_refused(server: ApiServer) -> None:
    given = cuttable()
    given["status"]["extendedResources"] = [{"resource": "nvidia.com/gpu", "devices": 1}]
    server.put(PHYSICAL_GPU, given)
    result = await run(server, "cordon", NAME)
    assert result.exit_code == 2
    assert f"{NAME} is handed out by the device plugin of node-0" in result.stderr
    assert not server.objects(DEVICE_TAINT_RULE)
    assert (await run(server, "uncordon", NAME)).exit_code == 0


async def test_an_api_server_without_the_kind_is_said_to_be_so(server: ApiServer) -> None:
    server.served.discard((DEVICE_TAINT_RULE.group, DEVICE_TAINT_RULE.plural))
    result = await run(server, "cordon", NAME)
    assert result.exit_code == 1
    assert "this API server has no DeviceTaintRule" in result.stderr
    assert "`kubectl cordon` keeps pods off the whole node" in result.stderr


async def test_a_reason_that_is_a_book_is_refused(server: ApiServer) -> None:
    result = await run(server, "cordon", NAME, "--reason", "x" * 1025)
    assert result.exit_code == 2
    assert "1025 characters; allowed: at most 1024" in result.stderr


async def test_get_shows_what_is_cordoned_and_that_it_is_free_again(server: ApiServer) -> None:
    make.put(
        server,
        make.resource_slice(
            labels.DRIVER, "node-0", *({"name": f"gpu-0000-{bus}-00-0"} for bus in ("1b", "1c"))
        ),
    )
    await done(server, "cordon", NAME)
    found = json.loads(await done(server, "get", "cards", "--json"))["cards"]
    assert {each["name"]: each["state"] == "Cordoned" for each in found} == {
        NAME: True,
        "node-0-0000-1c-00-0": False,
    }
    await done(server, "uncordon", NAME)
    found = json.loads(await done(server, "get", "cards", "--json"))["cards"]
    assert "Cordoned" not in [each["state"] for each in found]
