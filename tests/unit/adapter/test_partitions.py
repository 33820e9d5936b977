# SPDX-License-Identifier: Apache-2.0
"""Claims for parts of cards, over the protocol, the supervisor and a real library process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from grpc import aio
from tests.support import expect

from gpudeck.adapter import main
from gpudeck.adapter.settings import Settings
from gpudeck.adapter.v1 import adapter_pb2 as pb
from gpudeck.adapter.v1 import adapter_pb2_grpc
from gpudeck.vendors import contract
from gpudeck.vendors.simulated import machine

FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"
Mode = contract.PartitioningMode


class Served:
    """The product's adapter over simulated cards, and a client of it."""

    def __init__(self, bench: machine.Bench, stub: adapter_pb2_grpc.AdapterStub) -> None:
        self.bench = bench
        self.stub = stub

    def reading(self, index: int = 0) -> contract.CardReading:
        """What the card really is now."""
        return self.bench.read().cards[index].reading

    def places(self, index: int = 0) -> list[tuple[str, int]]:
        return [(each.profile, each.start) for each in self.reading(index).partitions]

    async def prepare(self, *claims: pb.ClaimRequest) -> list[pb.PreparedClaim]:
        answer = await self.stub.Prepare(pb.PrepareRequest(claims=claims), timeout=10)
        return list(answer.claims)

    async def unprepare(self, *claims: pb.ClaimRequest) -> list[pb.UnpreparedClaim]:
        answer = await self.stub.Unprepare(pb.UnprepareRequest(claims=claims), timeout=10)
        return list(answer.claims)

    async def snapshot(self) -> pb.Snapshot:
        stream = self.stub.WatchCards(pb.WatchCardsRequest(), wait_for_ready=True, timeout=20)
        answer: pb.WatchCardsResponse = await stream.read()
        stream.cancel()
        return answer.snapshot


@contextlib.asynccontextmanager
async def serving(root: Path, *, dynamic: bool = True) -> AsyncIterator[Served]:
    bench = machine.Bench(root)
    bench.write(machine.partitionable(2, dynamic=dynamic))
    socket = root / "adapter.sock"
    settings = Settings(vendor="simulated", socket=socket, host_root=root, poll_seconds=0.2)
    task = asyncio.create_task(main.run(settings))
    try:
        async with aio.insecure_channel(f"unix:{socket}") as channel:
            stub = adapter_pb2_grpc.AdapterStub(channel)  # type: ignore[no-untyped-call]
            served = Served(bench, stub)
            await served.snapshot()
            yield served
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def part(start: int, *, address: str = FIRST, profile: int = 19) -> pb.DeviceRequest:
    placement = pb.Placement(start=start, size=1 if profile == 19 else 2)
    wanted = pb.PartitionRequest(profile="1g.2gb", profile_id=profile, placement=placement)
    return pb.DeviceRequest(name=f"mig-{start}", pci_address=address, partition=wanted)


def whole(address: str = FIRST) -> pb.DeviceRequest:
    return pb.DeviceRequest(name="gpu", pci_address=address)


def share(**fields: object) -> pb.DeviceRequest:
    wanted = pb.ShareRequest(share_id="s", memory_bytes=1 << 30, **fields)  # type: ignore[arg-type]
    return pb.DeviceRequest(name="share", pci_address=FIRST, share=wanted)


def claim(uid: str, *devices: pb.DeviceRequest) -> pb.ClaimRequest:
    return pb.ClaimRequest(claim=pb.ClaimReference(uid=uid), devices=devices)


async def test_a_card_is_told_with_places_engines_and_whether_its_mode_follows(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        support = (await served.snapshot()).cards[0].partition_support
        assert support.dynamic
        profile = support.profiles[1]
        assert (profile.name, profile.copy_engines, profile.decoders) == ("1g.2gb", 1, 1)
        assert [(each.start, each.size) for each in profile.placements] == [
            (start, 1) for start in range(4)
        ]


async def test_partitions_are_made_at_prepare_and_removed_at_unprepare(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        both = claim("u", part(0), part(2))
        (prepared,) = await served.prepare(both)
        assert not prepared.HasField("error")
        assert served.places() == [("1g.2gb", 0), ("1g.2gb", 2)]
        made = {each.uuid for each in served.reading().partitions}
        assert {device.uuid for device in prepared.devices} == made
        nodes = [[node.path for node in each.edits.device_nodes] for each in prepared.devices]
        assert nodes == [
            ["/dev/simulated0", "/dev/simulated0p0"],
            ["/dev/simulated0", "/dev/simulated0p2"],
        ]
        (told,) = [card for card in (await served.snapshot()).cards if card.pci_address == FIRST]
        assert {each.uuid for each in told.partitioning.partitions} == made
        assert [each.profile_id for each in told.partitioning.partitions] == [19, 19]
        for _ in range(2):
            (gone,) = await served.unprepare(both)
            assert not gone.HasField("error")
            assert served.places() == []


async def test_preparing_again_gives_the_same_answer(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asked = claim("u", part(1))
        assert await served.prepare(asked) == await served.prepare(asked)
        assert served.places() == [("1g.2gb", 1)]


async def test_one_prepare_asked_twice_at_once_is_made_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asked = [claim(f"u{start}", part(start)) for start in range(4)]
        answers = await asyncio.gather(*(served.prepare(*asked) for _ in range(3)))
        assert answers[0] == answers[1] == answers[2]
        assert [start for _, start in served.places()] == [0, 1, 2, 3]


async def test_a_claim_that_fails_leaves_nothing_and_the_others_keep_theirs(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        await served.prepare(claim("before", part(2)))
        over = claim("over", part(0), part(2, profile=14))
        fails, works = await served.prepare(over, claim("good", part(1)))
        assert (fails.error.reason, fails.error.retryable) == ("PartitionConflict", True)
        assert FIRST in fails.error.message
        assert not fails.devices
        assert not works.HasField("error")
        assert served.places() == [("1g.2gb", 1), ("1g.2gb", 2)]


async def test_a_claim_that_fails_later_keeps_what_it_was_given_before(tmp_path: Path) -> None:
    """Its containers may run with it."""
    async with serving(tmp_path) as served:
        await served.prepare(claim("u", part(0)))
        (fails,) = await served.prepare(claim("u", part(0), part(1, address="0000:99:00.0")))
        assert fails.error.reason == "CardNotFound"
        assert served.places() == [("1g.2gb", 0)]


async def test_a_whole_card_and_a_share_turn_the_mode_off_first(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for device in (whole(), share()):
            await served.prepare(claim("p", part(0)))
            (waits,) = await served.prepare(claim("w", device))
            assert (waits.error.reason, waits.error.retryable) == ("CardPartitioned", True)
            assert served.places() == [("1g.2gb", 0)]
            await served.unprepare(claim("p", part(0)))
            assert served.reading().mode is Mode.ENABLED
            (given,) = await served.prepare(claim("w", device))
            assert not given.HasField("error")
            assert given.devices[0].uuid == served.reading().uuid
            assert served.reading().mode is Mode.DISABLED


async def test_a_card_whose_mode_does_not_follow_is_refused_for_good(tmp_path: Path) -> None:
    async with serving(tmp_path, dynamic=False) as served:
        (refused,) = await served.prepare(claim("p", part(0)))
        assert (refused.error.reason, refused.error.retryable) == ("PartitioningNeedsReset", False)
        served.bench.change_reading(0, mode=Mode.ENABLED)
        (given,) = await served.prepare(claim("p", part(0)))
        assert not given.HasField("error")


async def test_who_only_looks_on_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        looks = part(0)
        looks.admin_access = True
        (refused,) = await served.prepare(claim("admin", looks))
        assert (refused.error.reason, refused.error.retryable) == ("PartitionNotFound", True)
        assert served.reading().mode is Mode.DISABLED
        (owner,) = await served.prepare(claim("owner", part(0)))
        sees = whole()
        sees.admin_access = True
        (seen,) = await served.prepare(claim("admin", looks, sees))
        assert seen.devices[0].uuid == owner.devices[0].uuid
        assert seen.devices[1].uuid == served.reading().uuid
        await served.unprepare(claim("admin", looks, sees))
        assert served.places() == [("1g.2gb", 0)]


async def test_a_partition_in_use_is_told_and_removed_later(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.prepare(claim("u", part(0), part(1, address=SECOND)))
        served.bench.change_card(0, used=True)
        (busy,) = await served.unprepare(claim("u", part(0), part(1, address=SECOND)))
        assert (busy.error.reason, busy.error.retryable) == ("PartitionInUse", True)
        assert (served.places(0), served.places(1)) == ([("1g.2gb", 0)], [])
        served.bench.change_card(0, used=False)
        (gone,) = await served.unprepare(claim("u", part(0), part(1, address=SECOND)))
        assert not gone.HasField("error")
        assert served.places() == []


async def test_a_card_that_is_gone_holds_no_claim_up(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.prepare(claim("u", part(0)))
        lost = contract.Fault(reason="GpuLost", message="The card is lost.")
        served.bench.change_card(0, error=lost)
        (gone,) = await served.unprepare(claim("u", part(0), part(0, address="0000:99:00.0")))
        assert not gone.HasField("error")


async def test_mps_is_refused_where_the_card_does_not_offer_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        (refused,) = await served.prepare(claim("u", share(strategy=pb.SHARING_STRATEGY_MPS)))
        assert (refused.error.reason, refused.error.retryable) == ("SharingUnsupported", False)


def by_mps(served: Served, *names: str) -> list[pb.DeviceRequest]:
    """Shares of a card that offers MPS."""
    support = contract.ShareSupport(time_slicing=True, mps=True)
    served.bench.change_reading(0, share_support=support)
    return [
        pb.DeviceRequest(
            name=name,
            pci_address=FIRST,
            share=pb.ShareRequest(share_id=name, strategy=pb.SHARING_STRATEGY_MPS),
        )
        for name in names
    ]


async def mps_is_known(served: Served) -> None:
    """Wait until the adapter has read that the card offers MPS."""

    async def is_known() -> bool:
        return (await served.snapshot()).cards[0].share_support.mps

    await expect.eventually(is_known, True)


async def test_shares_join_at_prepare_and_leave_at_unprepare(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        first, second = by_mps(served, "a", "b")
        await mps_is_known(served)
        for device in (first, second, first):
            (given,) = await served.prepare(claim(device.name, device))
            assert not given.HasField("error")
        assert served.reading().mps_shares == ("a", "b")
        for _ in range(2):
            (gone,) = await served.unprepare(claim("a", first))
            assert not gone.HasField("error")
            assert served.reading().mps_shares == ("b",)
        await served.unprepare(claim("b", second))
        assert served.reading().mps_shares == ()


async def test_a_claim_that_fails_takes_its_share_back_and_keeps_what_it_had(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        first, second = by_mps(served, "a", "b")
        await mps_is_known(served)
        await served.prepare(claim("a", first))
        nowhere = whole("0000:99:00.0")
        for uid, device in (("a", first), ("b", second)):
            (fails,) = await served.prepare(claim(uid, device, nowhere))
            assert fails.error.reason == "CardNotFound"
            assert served.reading().mps_shares == ("a",)


async def test_shares_of_claims_that_are_gone_leave_before_the_card_is_used_otherwise(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        (left,) = by_mps(served, "a")
        await mps_is_known(served)
        for device in (whole(), share(), part(0)):
            await served.prepare(claim("a", left))
            assert served.reading().mps_shares == ("a",)
            (given,) = await served.prepare(claim("u", device))
            assert not given.HasField("error")
            assert served.reading().mps_shares == ()
            await served.unprepare(claim("u", device))


async def test_one_claim_has_one_share_by_mps(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        both = by_mps(served, "a", "b")
        await mps_is_known(served)
        (refused,) = await served.prepare(claim("u", *both))
        assert "2 shares by MPS (a, b); allowed: one" in refused.error.message
        assert served.reading().mps_shares == ()


async def test_an_interval_that_the_card_does_not_know_fails_no_claim(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        (given,) = await served.prepare(claim("u", share(interval=pb.TIME_SLICE_LONG)))
        assert not given.HasField("error")
