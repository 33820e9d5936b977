# SPDX-License-Identifier: Apache-2.0
"""Partitions are removed in the end, whoever was away when their claim was given back."""

from __future__ import annotations

import uuid

import pytest
from tests.scenario.dra.conftest import World
from tests.scenario.dra.standins import partition, partitionable

PLACE = ("0000:11:00.0", 2, 2)
"""Of `partition(1, 2)`: PCI address, start and size."""


@pytest.fixture
async def parts(stopped: World) -> World:
    """A world whose cards can be partitioned."""
    stopped.adapter.show(map(partitionable, range(4)))
    await stopped.start()
    await stopped.published(4)
    return stopped


async def test_a_partition_comes_and_goes_with_its_claim(parts: World) -> None:
    claim = parts.claim("c", 1, device=partition(1, 2))
    assert (await parts.kubelet.prepare(claim))["uid-c"].error == ""
    assert parts.adapter.partitions == {PLACE}
    assert await parts.kubelet.unprepare(claim) == {"uid-c": ""}
    assert (parts.adapter.partitions, parts.specs(), parts.states()) == (set(), [], {})


async def test_a_claim_for_looking_on_makes_and_removes_nothing(parts: World) -> None:
    owner = parts.claim("c", 1, device=partition(1, 2))
    looker = parts.claim("d", 1, device=partition(1, 2), adminAccess=True)
    assert (await parts.kubelet.prepare(looker))["uid-d"].error == ""
    assert parts.adapter.partitions == set()
    assert (await parts.kubelet.prepare(owner))["uid-c"].error == ""
    assert await parts.kubelet.unprepare(looker) == {"uid-d": ""}
    assert parts.adapter.partitions == {PLACE}


async def test_a_claim_is_given_back_without_the_adapter_and_its_partition_goes_later(
    parts: World,
) -> None:
    claim = parts.claim("c", 1, device=partition(1, 2))
    await parts.kubelet.prepare(claim)
    await parts.adapter.stop()
    assert await parts.kubelet.unprepare(claim) == {"uid-c": ""}
    assert (parts.specs(), parts.states()) == ([], {"c": "Released"})
    await parts.adapter.start()
    await parts.until(lambda: parts.states() == {})
    assert parts.adapter.partitions == set()


async def test_a_share_leaves_its_mps_daemon_later_where_the_adapter_is_away(
    parts: World,
) -> None:
    share = str(uuid.uuid4())
    claim = parts.claim("c", 1, device="share-0000-11-00-0-mps", shareID=share)
    assert (await parts.kubelet.prepare(claim))["uid-c"].error == ""
    assert parts.adapter.daemon_shares == {share}
    await parts.adapter.stop()
    assert await parts.kubelet.unprepare(claim) == {"uid-c": ""}
    assert parts.states() == {"c": "Released"}
    await parts.restart()
    await parts.adapter.start()
    await parts.until(lambda: parts.states() == {})
    assert parts.adapter.daemon_shares == set()


async def test_what_is_to_be_removed_outlives_the_plugin(parts: World) -> None:
    claim = parts.claim("c", 1, device=partition(1, 2))
    await parts.kubelet.prepare(claim)
    await parts.adapter.stop()
    await parts.kubelet.unprepare(claim)
    await parts.restart()
    assert parts.states() == {"c": "Released"}
    await parts.adapter.start()
    await parts.until(lambda: parts.states() == {})
    assert parts.adapter.partitions == set()


async def test_a_boot_takes_partitions_with_it(parts: World) -> None:
    claim = parts.claim("c", 1, device=partition(1, 2))
    await parts.kubelet.prepare(claim)
    await parts.adapter.stop()
    await parts.kubelet.unprepare(claim)
    await parts.stop()
    parts.adapter.partitions.clear()
    parts.boot("boot-2")
    await parts.adapter.start()
    await parts.start()
    other = parts.claim("d", 1)
    assert (await parts.kubelet.prepare(other))["uid-d"].error == ""
    assert parts.states() == {"d": "PrepareCompleted"}


@pytest.mark.parametrize("with_spec", [True, False])
async def test_a_partition_is_prepared_again_when_the_checkpoint_was_lost(
    parts: World, with_spec: bool
) -> None:
    claim = parts.claim("c", 1, device=partition(1, 2))
    first = await parts.kubelet.prepare(claim)
    await parts.stop()
    parts.checkpoint.write_text("{")
    if not with_spec:
        (parts.cdi_root / "k8s.gpu.deckhouse.io-claim_uid-c.json").unlink()
    await parts.start()
    assert await parts.kubelet.prepare(claim) == first
    assert parts.states() == {"c": "PrepareCompleted"}
    await parts.kubelet.unprepare(claim)
    assert (parts.states(), parts.adapter.partitions) == ({}, set())


async def test_a_claim_that_moved_meanwhile_leaves_nothing_at_its_first_place(
    parts: World,
) -> None:
    await parts.kubelet.prepare(parts.claim("c", 1, device=partition(1, 2)))
    await parts.stop()
    parts.checkpoint.write_text("{")
    await parts.start()
    moved = parts.claim("c", 1, device=partition(1, 4))
    assert (await parts.kubelet.prepare(moved))["uid-c"].error == ""
    assert parts.adapter.partitions == {("0000:11:00.0", 4, 2)}


async def test_the_next_claim_of_the_place_waits_until_the_partition_is_removed(
    parts: World,
) -> None:
    claim, whole = parts.claim("c", 1, device=partition(1, 2)), parts.claim("d", 1)
    beside = parts.claim("e", 1, device=partition(1, 4))
    await parts.kubelet.prepare(claim)
    parts.adapter.is_stubborn = True
    assert await parts.kubelet.unprepare(claim) == {"uid-c": ""}
    error = (await parts.kubelet.prepare(whole))["uid-d"].error
    assert error.startswith(f"DeviceBeingReleased: device {partition(1, 2)} of claim t/c ")
    assert (await parts.kubelet.prepare(beside))["uid-e"].error == ""
    parts.adapter.is_stubborn = False
    assert await parts.kubelet.unprepare(beside) == {"uid-e": ""}
    assert (await parts.kubelet.prepare(whole))["uid-d"].error == ""
    assert parts.adapter.partitions == set()


async def test_what_was_made_for_a_claim_that_failed_all_the_same_is_removed(
    parts: World,
) -> None:
    claim = parts.claim("c", 1, device=partition(1, 2))
    parts.adapter.has_edits = False
    error = (await parts.kubelet.prepare(claim))["uid-c"].error
    assert error.startswith("AdapterAnswerIncomplete: ")
    await parts.until(lambda: parts.states() == {})
    assert parts.adapter.partitions == set()


async def test_a_partition_that_a_claim_holds_is_not_handed_out_again(parts: World) -> None:
    await parts.kubelet.prepare(parts.claim("c", 1, device=partition(1, 2)))
    for name, changes in (("same", {"device": partition(1, 2)}), ("whole", {})):
        error = (await parts.kubelet.prepare(parts.claim(name, 1, **changes)))[f"uid-{name}"].error
        assert error.startswith(f"DeviceHeld: device {partition(1, 2)} is held by claim t/c ")
    assert parts.adapter.partitions == {PLACE}
