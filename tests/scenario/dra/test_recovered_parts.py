# SPDX-License-Identifier: Apache-2.0
"""Partitions whose checkpoint was lost, and claims that came back with other devices."""

from __future__ import annotations

import pytest
from tests.scenario.dra.conftest import World
from tests.scenario.dra.standins import card, device, partition, partitionable

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.dra import fetching, main

PLACE = ("0000:11:00.0", 4, 4)
"""Of `wide(1)`: PCI address, start and size."""


def mixed(number: int) -> adapter_pb2.Card:
    """`partitionable(number)` with a profile of four slices besides."""
    made = partitionable(number)
    made.partition_support.profiles.append(
        adapter_pb2.PartitionProfile(
            name="3g.40gb",
            profile_id=9,
            memory_mib=40 * 1024,
            max_instances=2,
            slices=3,
            placements=[adapter_pb2.Placement(start=start, size=4) for start in (0, 4)],
        )
    )
    return made


def wide(number: int) -> str:
    """The DRA device name of the upper large partition of `mixed(number)`."""
    return f"mig-0000-{0x10 + number:02x}-00-0-3g40gb-9-4"


@pytest.fixture
async def parts(stopped: World) -> World:
    """A world whose cards can be partitioned in two ways."""
    stopped.adapter.show(map(mixed, range(4)))
    await stopped.start()
    await stopped.published(4)
    return stopped


async def lose_checkpoint(world: World, *, shown: adapter_pb2.Card | None = None) -> None:
    """The plugin starts anew without its checkpoint; card 1 is then as `shown`."""
    await world.stop()
    world.checkpoint.unlink()
    if shown is not None:
        world.adapter.show([card(0), shown])
    await world.start()
    await world.until(lambda: "CheckpointReplaced" in world.events())


def shows(number: int, *partitions: tuple[int, int, int]) -> adapter_pb2.Card:
    """A card with partitions, each of a profile at a start and of a size, and no list of places."""
    made = card(number)
    made.partitioning.mode = adapter_pb2.PARTITIONING_MODE_ENABLED
    for profile_id, start, size in partitions:
        made.partitioning.partitions.add(profile_id=profile_id, start=start, size=size)
    return made


async def test_a_recovered_partition_is_removed_though_its_profile_is_no_longer_listed(
    parts: World,
) -> None:
    claim = parts.claim("c", 1, device=wide(1))
    await parts.kubelet.prepare(claim)
    assert parts.adapter.partitions == {PLACE}
    await lose_checkpoint(parts, shown=shows(1, (9, 4, 4)))
    assert await parts.kubelet.unprepare(claim) == {"uid-c": ""}
    await parts.until(lambda: parts.states() == {})
    assert parts.adapter.partitions == set()


async def test_a_recovered_partition_that_the_card_no_longer_has_is_given_back(
    parts: World,
) -> None:
    claim = parts.claim("c", 1, device=wide(1))
    await parts.kubelet.prepare(claim)
    await lose_checkpoint(parts, shown=shows(1))
    assert await parts.kubelet.unprepare(claim) == {"uid-c": ""}
    assert (parts.states(), parts.specs()) == ({}, [])


async def test_a_recovered_partition_stays_ours_until_its_card_has_been_read(
    parts: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "RELEASE_SECONDS", 0.05)
    claim = parts.claim("c", 1, device=wide(1))
    await parts.kubelet.prepare(claim)
    unread = adapter_pb2.Card(pci_address=card(1).pci_address)
    await lose_checkpoint(parts, shown=unread)
    assert await parts.kubelet.unprepare(claim) == {"uid-c": ""}
    assert parts.states() == {"c": "Released"}
    parts.adapter.show([card(0), mixed(1)])
    await parts.until(lambda: parts.states() == {})
    assert parts.adapter.partitions == set()


async def test_a_spec_of_a_device_of_another_release_is_given_back(world: World) -> None:
    claim = world.claim("c", 1)
    await world.kubelet.prepare(claim)
    await world.stop()
    world.checkpoint.unlink()
    path = world.cdi_root / "k8s.gpu.deckhouse.io-claim_uid-c.json"
    path.write_text(path.read_text().replace(device(1), "tile-7"))
    await world.start()
    assert await world.kubelet.unprepare(claim) == {"uid-c": ""}
    assert (world.states(), world.specs()) == ({}, [])


async def test_a_recovered_partition_excludes_all_that_it_overlaps(parts: World) -> None:
    await parts.kubelet.prepare(parts.claim("c", 1, device=wide(1)))
    seen = mixed(1)
    seen.partitioning.partitions.add(profile_id=9, start=4, size=4)
    await lose_checkpoint(parts, shown=seen)
    over = parts.claim("over", 1, device=partition(1, 6))
    beside = parts.claim("beside", 1, device=partition(1, 2))
    answer = await parts.kubelet.prepare(over, beside)
    assert answer["uid-over"].error.startswith(f"DeviceHeld: device {wide(1)} is held by claim ")
    assert answer["uid-beside"].error == ""


async def test_a_recovered_partition_is_prepared_anew_when_asked_for(parts: World) -> None:
    claim = parts.claim("c", 1, device=wide(1))
    first = await parts.kubelet.prepare(claim)
    await lose_checkpoint(parts)
    assert await parts.kubelet.prepare(claim) == first
    assert (parts.states(), parts.adapter.partitions) == ({"c": "PrepareCompleted"}, {PLACE})


async def test_a_claim_that_is_allocated_anew_gets_its_new_card(world: World) -> None:
    await world.kubelet.prepare(world.claim("c", 1))
    answer = (await world.kubelet.prepare(world.claim("c", 2)))["uid-c"]
    assert (answer.error, [each.device_name for each in answer.devices]) == ("", [device(2)])
    assert world.spec("c")["devices"][0]["name"].endswith(device(2))
    assert (await world.kubelet.prepare(world.claim("d", 1)))["uid-d"].error == ""


async def test_a_claim_whose_requests_change_places_is_answered_so(world: World) -> None:
    await world.kubelet.prepare(world.claim("c", 1, 2))
    answer = (await world.kubelet.prepare(world.claim("c", 2, 1)))["uid-c"]
    found = {each.device_name: list(each.request_names) for each in answer.devices}
    assert (answer.error, found) == ("", {device(2): ["r0"], device(1): ["r1"]})


async def test_a_claim_that_is_allocated_anew_leaves_no_partition_of_before(parts: World) -> None:
    await parts.kubelet.prepare(parts.claim("c", 1, device=wide(1)))
    answer = (await parts.kubelet.prepare(parts.claim("c", 1, device=partition(1, 0))))["uid-c"]
    assert (answer.error, answer.devices[0].device_name) == ("", partition(1, 0))
    assert parts.adapter.partitions == {("0000:11:00.0", 0, 2)}


async def test_a_claim_allocated_anew_waits_until_its_partition_of_before_is_removed(
    parts: World,
) -> None:
    await parts.kubelet.prepare(parts.claim("c", 1, device=wide(1)))
    parts.adapter.is_stubborn = True
    moved = parts.claim("c", 2, device=partition(2, 0))
    error = (await parts.kubelet.prepare(moved))["uid-c"].error
    assert error.startswith("DeviceBeingReleased: claim t/c: what was made for its last allocation")
    assert (parts.states(), parts.specs()) == ({"c": "Released"}, [])
    parts.adapter.is_stubborn = False
    assert (await parts.kubelet.prepare(moved))["uid-c"].error == ""
    assert parts.adapter.partitions == {("0000:12:00.0", 0, 2)}


async def test_a_claim_allocated_anew_is_not_answered_with_the_card_that_it_cannot_give_back(
    world: World,
) -> None:
    await world.kubelet.prepare(world.claim("c", 1))
    world.adapter.keeps = {"uid-c"}
    moved = world.claim("c", 2)
    other = world.claim("d", 3)
    answers = await world.kubelet.prepare(moved, other)
    assert answers["uid-c"].error == "InUse: a process uses it"
    assert answers["uid-d"].error == ""
    world.adapter.keeps = set()
    answer = (await world.kubelet.prepare(moved))["uid-c"]
    assert (answer.error, answer.devices[0].device_name) == ("", device(2))


@pytest.mark.parametrize("now", ["allocated anew", "the same"])
async def test_a_recovered_claim_is_what_its_allocation_says_now(parts: World, now: str) -> None:
    await parts.kubelet.prepare(parts.claim("c", 1, device=wide(1)))
    await lose_checkpoint(parts)
    place = partition(2, 0) if now == "allocated anew" else wide(1)
    answer = (await parts.kubelet.prepare(parts.claim("c", 1, device=place)))["uid-c"]
    assert (answer.error, answer.devices[0].device_name) == ("", place)
    assert len(parts.adapter.partitions) == 1


async def test_a_partition_goes_with_the_last_claim_that_a_lost_checkpoint_had_for_it(
    parts: World,
) -> None:
    owner = parts.claim("owner", 1, device=wide(1))
    looker = parts.claim("looker", 1, device=wide(1), adminAccess=True)
    await parts.kubelet.prepare(owner, looker)
    await lose_checkpoint(parts)
    assert await parts.kubelet.unprepare(looker) == {"uid-looker": ""}
    assert parts.adapter.partitions == {PLACE}
    assert await parts.kubelet.unprepare(owner) == {"uid-owner": ""}
    assert (parts.states(), parts.adapter.partitions) == ({}, set())


async def test_a_prepared_claim_is_answered_while_the_api_server_hangs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "COMPARE_SECONDS", 0.05)
    claim = world.claim("c", 1)
    first = await world.kubelet.prepare(claim)
    world.api.stall()
    try:
        assert await world.kubelet.prepare(claim) == first
    finally:
        world.api.resume()
