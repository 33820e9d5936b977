# SPDX-License-Identifier: Apache-2.0
"""What a claim's status says of the devices that were prepared for it."""

from __future__ import annotations

from typing import Any

from tests.scenario.dra.conftest import World
from tests.scenario.dra.standins import device, sick

from gpudeck.api import resources


def told(world: World, name: str) -> list[dict[str, Any]]:
    claim = world.api.objects(resources.RESOURCE_CLAIM)[f"t/{name}"]
    found: list[dict[str, Any]] = claim["status"].get("devices") or []
    return found


def states(entry: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in entry["conditions"]}


async def test_a_prepared_claim_says_which_card_it_has(world: World) -> None:
    claim = world.claim("c", 1)
    await world.kubelet.prepare(claim)
    await world.until(lambda: told(world, "c"))
    (entry,) = told(world, "c")
    assert (entry["driver"], entry["pool"], entry["device"]) == (
        "gpu.deckhouse.io",
        "node-0",
        device(1),
    )
    assert entry["data"]["gpuUUID"] == "GPU-00000000-0000-0000-0000-000000000001"
    assert states(entry)["Ready"] == ("True", "Prepared")
    assert states(entry)["Healthy"][0] == "True"


async def test_the_status_follows_the_health_of_the_card(world: World) -> None:
    await world.kubelet.prepare(world.claim("c", 1))
    await world.until(lambda: told(world, "c"))
    world.adapter.show([sick(1, "GpuLost")])
    await world.until(lambda: states(told(world, "c")[0])["Healthy"] == ("False", "GpuLost"))
    assert states(told(world, "c")[0])["Ready"] == ("True", "Prepared")


async def test_a_claim_that_is_given_back_says_nothing_of_devices(world: World) -> None:
    claim = world.claim("c", 1)
    await world.kubelet.prepare(claim)
    await world.until(lambda: told(world, "c"))
    await world.kubelet.unprepare(claim)
    await world.until(lambda: not told(world, "c"))


async def test_a_restarted_plugin_changes_nothing_that_is_right(world: World) -> None:
    await world.kubelet.prepare(world.claim("c", 1))
    await world.until(lambda: told(world, "c"))
    before = told(world, "c")
    await world.restart()
    claim = world.claim("d", 2)
    await world.kubelet.prepare(claim)
    await world.until(lambda: told(world, "d"))
    assert told(world, "c") == before


async def test_calls_are_answered_while_claims_cannot_be_written(world: World) -> None:
    world.api.fail(100, status=403, method="PATCH", path="/resourceclaims/")
    claim = world.claim("c", 1)
    assert (await world.kubelet.prepare(claim))["uid-c"].error == ""
    assert await world.kubelet.unprepare(claim) == {"uid-c": ""}
