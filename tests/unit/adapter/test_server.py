# SPDX-License-Identifier: Apache-2.0
"""The protocol over a real socket, with an inventory that the test publishes."""

import asyncio
import contextlib
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import msgspec
import pytest
from grpc import aio

from gpudeck import errors
from gpudeck.adapter import server
from gpudeck.adapter.v1 import adapter_pb2 as pb
from gpudeck.adapter.v1 import adapter_pb2_grpc
from gpudeck.vendors import contract, health, records, registry
from gpudeck.vendors.simulated import machine

NOW = health.Moment(steady=0.0, unix=1_700_000_000)


class Served:
    """An adapter at work and a client of it."""

    def __init__(
        self, feed: server.Feed, stub: adapter_pb2_grpc.AdapterStub, host: machine.Machine
    ):
        self.feed = feed
        self.stub = stub
        self.host = host

    def publish(self, **changes: object) -> None:
        """Publish the host's cards, all read and healthy, the first one with `changes`."""
        cards = []
        for index, card in enumerate(self.host.cards):
            reading = card.reading
            if index == 0:
                reading = msgspec.structs.replace(reading, **changes)
            record = records.Record(site=card.site, memory=health.start(NOW))
            cards.append(record.read(reading, NOW))
        self.feed.publish(records.inventory(cards, self.host.driver))


async def no_action(address: str, action: contract.Action) -> contract.Partition | None:
    """A card that is as it is."""
    raise errors.UnsupportedError(f"{address}: {action}", reason="ActionUnsupported")


@contextlib.asynccontextmanager
async def serving(tmp_path: Path, *, heartbeat: float = 5.0) -> AsyncIterator[Served]:
    host = machine.make(2)
    machine.Bench(tmp_path).write(host)
    vendor = registry.load("simulated").vendor(contract.VendorSettings(host_root=str(tmp_path)))
    feed = server.Feed()
    adapter = server.Adapter(vendor, feed, no_action, heartbeat_seconds=heartbeat)
    socket = tmp_path / "adapter.sock"
    async with (
        server.serving(adapter, socket),
        aio.insecure_channel(f"unix:{socket}") as channel,
    ):
        stub = adapter_pb2_grpc.AdapterStub(channel)  # type: ignore[no-untyped-call]
        yield Served(feed, stub, host)


def claim(uid: str, *addresses: str) -> pb.ClaimRequest:
    devices = [
        pb.DeviceRequest(name=f"gpu-{index}", pci_address=address)
        for index, address in enumerate(addresses)
    ]
    return pb.ClaimRequest(claim=pb.ClaimReference(uid=uid), devices=devices)


FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"


async def test_identify_answers_before_any_card_was_read(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        answer = await served.stub.Identify(pb.IdentifyRequest(), timeout=5)
        assert (answer.vendor, answer.heartbeat_seconds) == ("simulated", 5)


async def test_the_socket_is_the_owners_alone_and_a_stale_one_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "adapter.sock").write_text("left behind")
    async with serving(tmp_path) as served:
        await served.stub.Identify(pb.IdentifyRequest(), timeout=5)
        assert stat.S_IMODE((tmp_path / "adapter.sock").stat().st_mode) == 0o600


async def test_a_watch_starts_with_a_snapshot_and_follows_changes(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        stream = served.stub.WatchCards(pb.WatchCardsRequest(), timeout=10)
        served.publish()
        first = (await stream.read()).snapshot
        assert first.revision == 1
        assert [card.pci_address for card in first.cards] == [FIRST, SECOND]
        card = first.cards[0]
        assert (card.minor, card.numa_node, card.pcie_root) == (0, 0, "pci0000:00")
        assert card.HasField("minor")
        assert card.health.verdict == pb.VERDICT_HEALTHY
        assert not card.health.HasField("xid")
        assert card.driver.ready
        assert card.driver.version == "1.2.3"
        assert card.api_driver_version == "4.5"
        served.publish(product_name="Other")
        second = (await stream.read()).snapshot
        assert (second.revision, second.cards[0].product_name) == (2, "Other")


async def test_memory_that_is_not_reported_is_absent(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.publish(memory_bytes=None)
        stream = served.stub.WatchCards(pb.WatchCardsRequest(), timeout=10)
        cards = (await stream.read()).snapshot.cards
        assert not cards[0].HasField("memory_bytes")
        assert cards[1].memory_bytes == 8 << 30


async def test_a_quiet_watch_says_that_it_lives(tmp_path: Path) -> None:
    async with serving(tmp_path, heartbeat=0.05) as served:
        served.publish()
        stream = served.stub.WatchCards(pb.WatchCardsRequest(), timeout=10)
        assert (await stream.read()).WhichOneof("event") == "snapshot"
        beat = await stream.read()
        assert beat.WhichOneof("event") == "heartbeat"
        assert beat.heartbeat.revision == 1


async def test_two_watches_see_the_same(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        streams = [served.stub.WatchCards(pb.WatchCardsRequest(), timeout=10) for _ in range(2)]
        served.publish()
        seen = [(await stream.read()).snapshot for stream in streams]
        assert seen[0] == seen[1]


async def test_prepare_is_the_same_each_time(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.publish()
        request = pb.PrepareRequest(claims=[claim("u", FIRST, SECOND)], hook_path="/opt/hook")
        answers = [await served.stub.Prepare(request, timeout=5) for _ in range(2)]
        assert answers[0] == answers[1]
        prepared = answers[0].claims[0]
        assert prepared.uid == "u"
        assert not prepared.HasField("error")
        assert [device.name for device in prepared.devices] == ["gpu-0", "gpu-1"]
        assert prepared.devices[1].edits.device_nodes[0].path == "/dev/simulated1"
        assert prepared.shared.hooks[0].path == "/opt/hook"


async def test_one_bad_claim_does_not_spoil_another(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.publish()
        request = pb.PrepareRequest(claims=[claim("bad", "0000:99:00.0"), claim("good", FIRST)])
        bad, good = (await served.stub.Prepare(request, timeout=5)).claims
        assert (bad.error.reason, bad.error.retryable) == ("CardNotFound", True)
        assert "0000:99:00.0" in bad.error.message
        assert not good.HasField("error")
        assert len(good.devices) == 1


async def test_a_partitioned_card_is_refused_for_good(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.publish(mode=contract.PartitioningMode.ENABLED)
        answer = await served.stub.Prepare(pb.PrepareRequest(claims=[claim("u", FIRST)]), timeout=5)
        error = answer.claims[0].error
        assert (error.reason, error.retryable) == ("CardPartitioned", False)


async def test_a_card_whose_driver_is_away_is_refused_for_now(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        card = served.host.cards[0]
        away = contract.DriverState(ready=False, reason="DriverNotLoaded", message="No module.")
        record = records.Record(site=card.site, memory=health.start(NOW))
        served.feed.publish(records.inventory([record], away))
        answer = await served.stub.Prepare(pb.PrepareRequest(claims=[claim("u", FIRST)]), timeout=5)
        error = answer.claims[0].error
        assert (error.reason, error.retryable) == ("CardNotReady", True)
        assert "No module." in error.message


async def test_prepare_before_the_first_reading_is_unavailable(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        with pytest.raises(aio.AioRpcError) as caught:
            await served.stub.Prepare(pb.PrepareRequest(claims=[claim("u", FIRST)]), timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_unprepare_succeeds_for_a_claim_that_never_was(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        request = pb.UnprepareRequest(claims=[claim("never", "0000:99:00.0")])
        answer = await served.stub.Unprepare(request, timeout=5)
        assert [each.uid for each in answer.claims] == ["never"]
        assert not answer.claims[0].HasField("error")


async def test_its_metrics_tell_the_verdicts_of_the_cards_that_are_there(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.publish()
        await served.stub.Unprepare(pb.UnprepareRequest())
        text = (await served.stub.Metrics(pb.MetricsRequest())).text.decode()
        for card in served.host.cards:
            assert f'gpudeck_adapter_card_healthy{{address="{card.site.address}"}} 1.0' in text
        assert "gpudeck_adapter_driver_ready 1.0" in text
        assert 'gpudeck_adapter_call_seconds_count{call="unprepare"}' in text
        served.feed.publish(records.Inventory())
        text = (await served.stub.Metrics(pb.MetricsRequest())).text.decode()
        assert "gpudeck_adapter_card_healthy{" not in text


async def test_told_a_second_time_to_end_it_waits_for_its_readers_no_longer(tmp_path: Path) -> None:
    ready = asyncio.get_running_loop().create_future()

    async def serve() -> None:
        async with serving(tmp_path) as served:
            served.publish()
            ready.set_result(served)
            await asyncio.Event().wait()

    server_task = asyncio.create_task(serve())
    await ready
    async with aio.insecure_channel(f"unix:{tmp_path}/adapter.sock") as channel:
        stub = adapter_pb2_grpc.AdapterStub(channel)  # type: ignore[no-untyped-call]
        stream = stub.WatchCards(pb.WatchCardsRequest(), timeout=20)
        assert (await stream.read()).HasField("snapshot")
        server_task.cancel()
        await asyncio.sleep(0)
        server_task.cancel()
        async with asyncio.timeout(server.READERS_SECONDS / 2):
            with pytest.raises(asyncio.CancelledError):
                await server_task
