# SPDX-License-Identifier: Apache-2.0
"""The administrator's choice of the partition mode, from the label to the card and back.

The plugin and the product's own adapter run over simulated cards whose mode changes by a
reset; what became of a card is read from the simulation, not from gpudeck.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.scenario.dra import standins
from tests.scenario.dra.conftest import NODE, World
from tests.scenario.dra.test_kills import GPUDECK, Plugin
from tests.scenario.dra.test_publishing import put_class

from gpudeck.adapter import main
from gpudeck.adapter.settings import Settings
from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import names, resources
from gpudeck.devices.identities import PciAddress
from gpudeck.dra import changing, switching
from gpudeck.vendors import contract
from gpudeck.vendors.simulated import machine

LABEL = "gpu.deckhouse.io/mig-mode"
ADDRESSES = ("0000:01:00.0", "0000:02:00.0")
FIRST, SECOND = (names.gpu_device_name(PciAddress.parse(each)) for each in ADDRESSES)
FIRST_PART, SECOND_PART = (f"mig-0000-0{number}-00-0-1g2gb-19-0" for number in (1, 2))
ON, OFF = contract.PartitioningMode.ENABLED, contract.PartitioningMode.DISABLED
PLACES = 6
"""Places for partitions of one card: two of 2g.4gb, four of 1g.2gb."""


class Cards:
    """The node's two simulated cards, its adapter, and what the API says of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.bench = machine.Bench(world.folder)
        self._adapter: asyncio.Task[None] | None = None

    async def start_adapter(self) -> None:
        settings = Settings(
            vendor="simulated",
            socket=self.world.adapter.socket,
            host_root=self.world.folder,
            poll_seconds=0.2,
        )
        self._adapter = asyncio.create_task(main.run(settings))

    async def stop_adapter(self) -> None:
        if self._adapter is not None:
            self._adapter.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._adapter

    def mode(self, index: int = 0) -> contract.PartitioningMode:
        return self.bench.read().cards[index].reading.mode

    def pending(self, index: int = 0) -> contract.PartitioningMode:
        return self.bench.read().cards[index].reading.pending_mode

    def label_node(self, value: str | None) -> None:
        found = {LABEL: value} if value is not None else {}
        meta = {"name": NODE, "uid": "node-uid", "labels": found}
        self.world.api.put(resources.NODE, {"metadata": meta})

    def put_gpu(self, index: int, value: str | None = None) -> None:
        """What the node agent writes, and perhaps an administrator's label."""
        marks = {"gpu.deckhouse.io/node": NODE, "gpu.deckhouse.io/vendor": "simulated"}
        if value is not None:
            marks[LABEL] = value
        known = self.world.api.objects(resources.PHYSICAL_GPU).get(gpu_name(index), {})
        status = known.get("status") or {"pciInfo": {"address": ADDRESSES[index]}}
        self.world.api.put(
            resources.PHYSICAL_GPU,
            {"metadata": {"name": gpu_name(index), "labels": marks}, "status": status},
        )

    def said(self, index: int = 0, *, of: str = "") -> tuple[str, str]:
        """Reason and message of PartitioningApplied; empty where nothing is said."""
        found = self.world.api.objects(resources.PHYSICAL_GPU)[of or gpu_name(index)]["status"]
        for each in found.get("conditions") or ():
            if each["type"] == "PartitioningApplied":
                return each["reason"], each["message"]
        return "", ""

    def tainted(self) -> set[str]:
        """The devices that get no new claims."""
        return {
            each["name"]
            for each in self.world.devices()
            if any(taint["key"] == LABEL for taint in each.get("taints") or ())
        }

    def offered(self, index: int) -> set[str]:
        """Kinds of the devices of a card."""
        dashed = PciAddress.parse(ADDRESSES[index]).dashed
        return {
            name.partition("-")[0]
            for name in (each["name"] for each in self.world.devices())
            if dashed in name
        }


def gpu_name(index: int) -> str:
    return names.physical_gpu_name(NODE, PciAddress.parse(ADDRESSES[index]))


@pytest.fixture
async def cards(stopped: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cards]:
    """Both cards offered whole, with a class that asks for partitions and one for shares."""
    monkeypatch.setattr(switching, "SETTLE_SECONDS", 0.1)
    monkeypatch.setattr(switching, "ASK_SECONDS", 0.2)
    monkeypatch.setattr(switching, "REFUSED_SECONDS", 0.3)
    await stopped.adapter.stop()
    found = Cards(stopped)
    found.bench.write(machine.partitionable(2, dynamic=False))
    put_class(stopped, "parts")
    for index in (0, 1):
        found.put_gpu(index)
    await found.start_adapter()
    try:
        await stopped.start()
        await stopped.published(2)
        yield found
    finally:
        await stopped.stop()
        await found.stop_adapter()


async def test_idle_cards_get_the_mode_of_the_node_s_label_and_go_back(cards: Cards) -> None:
    world = cards.world
    cards.label_node("enabled")
    await world.until(lambda: [cards.mode(0), cards.mode(1)] == [ON, ON])
    await world.published(2 * PLACES)
    await world.until(lambda: cards.said(0)[0] == cards.said(1)[0] == "Applied")
    assert cards.offered(0) == cards.offered(1) == {"mig"}
    await world.until(lambda: cards.tainted() == set())
    cards.label_node("disabled")
    await world.until(lambda: [cards.mode(0), cards.mode(1)] == [OFF, OFF])
    await world.until(lambda: cards.offered(0) == cards.offered(1) == {"gpu"})
    cards.label_node(None)
    await world.until(lambda: cards.said(0) == cards.said(1) == ("", ""))
    assert cards.mode(0) is OFF


async def test_the_label_of_one_card_concerns_that_card_alone(cards: Cards) -> None:
    cards.put_gpu(1, "enabled")
    await cards.world.until(lambda: cards.mode(1) is ON)
    await cards.world.until(lambda: cards.said(1)[0] == "Applied")
    assert cards.mode(0) is OFF
    assert cards.said(0) == ("", "")
    cards.label_node("enabled")
    cards.put_gpu(1, "disabled")
    await cards.world.until(lambda: [cards.mode(0), cards.mode(1)] == [ON, OFF])


async def test_a_card_that_a_claim_holds_waits_and_names_it_while_the_idle_one_switches(
    cards: Cards,
) -> None:
    world = cards.world
    claim = world.claim("train", 0, device=FIRST)
    assert (await world.kubelet.prepare(claim))["uid-train"].error == ""
    cards.label_node("enabled")
    await world.until(lambda: cards.mode(1) is ON)
    await world.until(lambda: cards.said()[0] == "WaitingForClaims")
    assert "claim t/train" in cards.said()[1]
    assert await world.until(lambda: cards.tainted() == {FIRST})
    assert cards.mode(0) is OFF
    await world.kubelet.unprepare(claim)
    world.forget_claim("train")
    await world.until(lambda: cards.mode(0) is ON)
    await world.until(lambda: cards.said()[0] == "Applied")


async def test_a_claim_that_is_allocated_and_not_prepared_yet_holds_its_card(cards: Cards) -> None:
    world = cards.world
    claim = world.claim("soon", 0, device=FIRST)
    cards.label_node("enabled")
    await world.until(lambda: cards.said()[0] == "WaitingForClaims")
    assert "claim t/soon" in cards.said()[1]
    assert (await world.kubelet.prepare(claim))["uid-soon"].error == ""
    assert cards.mode(0) is OFF
    await world.kubelet.unprepare(claim)
    world.forget_claim("soon")
    await world.until(lambda: cards.mode(0) is ON)


async def test_a_card_that_waits_for_a_claim_of_the_api_is_said_once(cards: Cards) -> None:
    world = cards.world
    world.claim("soon", 0, device=FIRST)
    cards.put_gpu(0, "enabled")
    await world.until(lambda: cards.said()[0] == "WaitingForClaims")
    writes, looks = len(world.api.writes), len(claims_listed(world))
    await world.until(lambda: len(claims_listed(world)) >= looks + 4)
    assert world.api.writes[writes:] == []


def claims_listed(world: World) -> list[str]:
    return [each.path for each in world.api.seen if each.path.endswith("/resourceclaims")]


async def test_a_claim_of_the_old_kind_that_came_too_late_is_served_first(cards: Cards) -> None:
    world = cards.world
    cards.put_gpu(0, "enabled")
    await world.until(lambda: cards.said()[0] == "Applied")
    late = world.claim("late", 0, device=FIRST)
    refused = (await world.kubelet.prepare(late))["uid-late"].error
    assert refused.startswith("ModeMismatch: ")
    await world.until(lambda: cards.mode(0) is OFF)
    prepared = await insist(world, late)
    assert prepared.error == ""
    await world.until(lambda: cards.said()[0] == "WaitingForClaims")
    await world.kubelet.unprepare(late)
    world.forget_claim("late")
    await world.until(lambda: cards.mode(0) is ON)


async def test_a_late_claim_that_is_given_up_changes_nothing(cards: Cards) -> None:
    world = cards.world
    cards.put_gpu(0, "enabled")
    await world.until(lambda: cards.said()[0] == "Applied")
    held = world.claim("part", 0, device=FIRST_PART)
    assert (await world.kubelet.prepare(held))["uid-part"].error == ""
    late = world.claim("late", 0, device=FIRST)
    await world.kubelet.prepare(late)
    await world.until(lambda: "claim t/part" in cards.said()[1])
    world.forget_claim("late")
    await world.until(lambda: cards.said()[0] == "Applied")
    assert cards.mode(0) is ON


async def test_a_late_claim_is_served_first_though_the_checkpoint_was_lost(cards: Cards) -> None:
    world = cards.world
    cards.put_gpu(0, "enabled")
    cards.put_gpu(1, "enabled")
    await world.until(lambda: cards.said(0)[0] == cards.said(1)[0] == "Applied")
    late = world.claim("late", 0, device=FIRST)
    await world.stop()
    world.checkpoint.write_text("{")
    await world.start()
    other = world.claim("other", 0, device=SECOND_PART)
    both = world.kubelet.prepare(late), insist(world, other)
    answers, prepared = await asyncio.gather(*both)
    assert answers["uid-late"].error.startswith("ModeMismatch: ")
    assert prepared.error == ""
    assert (await insist(world, late)).error == ""
    assert cards.mode(0) is OFF


async def test_a_partition_that_was_given_back_a_moment_ago_is_not_one_of_others(
    stopped: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inventory without it comes after the answer of Unprepare, here not at all."""
    monkeypatch.setattr(switching, "SETTLE_SECONDS", 0.1)
    world, cards = stopped, Cards(stopped)
    card = standins.partitionable(1)
    card.partition_support.dynamic = False
    card.partitioning.mode = adapter_pb2.PARTITIONING_MODE_ENABLED
    card.partitioning.pending = adapter_pb2.PARTITIONING_MODE_ENABLED
    card.partitioning.partitions.add(profile="1g.20gb", profile_id=15, start=2, size=2)
    world.adapter.show([card])
    name = names.physical_gpu_name(NODE, PciAddress.parse(card.pci_address))
    marks = {"gpu.deckhouse.io/node": NODE, "gpu.deckhouse.io/vendor": "nvidia", LABEL: "disabled"}
    world.api.put(
        resources.PHYSICAL_GPU,
        {
            "metadata": {"name": name, "labels": marks},
            "status": {"pciInfo": {"address": card.pci_address}},
        },
    )
    piece = world.claim("piece", 1, device=standins.partition(1, 2))
    await world.start()
    assert (await world.kubelet.prepare(piece))["uid-piece"].error == ""
    await world.until(lambda: cards.said(of=name)[0] == "WaitingForClaims")
    world.forget_claim("piece")
    await world.kubelet.unprepare(piece)
    await world.until(lambda: cards.said(of=name)[0] != "WaitingForClaims")
    assert cards.said(of=name)[0] != "WaitingForPartitions"


async def insist(world: World, claim: dict[str, Any]) -> Any:
    """Prepare as the kubelet does, until the card has the mode."""
    async with asyncio.timeout(20):
        while True:
            (answer,) = (await world.kubelet.prepare(claim)).values()
            if not answer.error.startswith(("ModeMismatch: ", "CardChanging: ")):
                return answer
            await asyncio.sleep(0.02)


async def test_a_partition_of_a_claim_keeps_the_mode_on(cards: Cards) -> None:
    world = cards.world
    cards.put_gpu(0, "enabled")
    await world.until(lambda: cards.offered(0) == {"mig"})
    claim = world.claim("piece", 0, device=FIRST_PART)
    assert (await world.kubelet.prepare(claim))["uid-piece"].error == ""
    cards.put_gpu(0, "disabled")
    await world.until(lambda: cards.said()[0] == "WaitingForClaims")
    assert cards.mode(0) is ON
    await world.kubelet.unprepare(claim)
    world.forget_claim("piece")
    await world.until(lambda: cards.mode(0) is OFF)
    await world.until(lambda: cards.offered(0) == {"gpu"})


async def test_a_process_on_the_card_is_said_and_the_card_stays_in_the_pool(cards: Cards) -> None:
    world = cards.world
    cards.bench.change_card(0, used=True)
    cards.put_gpu(0, "enabled")
    await world.until(lambda: cards.said()[0] == "SwitchFailed")
    assert ADDRESSES[0] in cards.said()[1]
    await world.until(lambda: cards.tainted() == set())
    assert (cards.mode(), cards.offered(0)) == (OFF, {"gpu"})
    cards.bench.change_card(0, used=False)
    await world.until(lambda: cards.mode() is ON)


async def test_a_reset_that_fails_stays_pending_and_is_tried_again(cards: Cards) -> None:
    world = cards.world
    fault = contract.Fault(reason="ResetFailed", message="The card does not come back.")
    cards.bench.change_card(0, reset_fails=fault)
    cards.put_gpu(0, "enabled")
    await world.until(lambda: cards.said()[0] == "SwitchFailed")
    assert "The card does not come back." in cards.said()[1]
    assert (cards.mode(), cards.pending()) == (OFF, ON)
    await world.until(lambda: cards.offered(0) == {"gpu"} and not cards.tainted())
    cards.bench.change_card(0, reset_fails=None)
    await world.until(lambda: cards.said()[0] == "Applied")
    assert cards.mode() is ON


async def test_a_choice_that_is_taken_back_takes_back_the_pending_mode(cards: Cards) -> None:
    world = cards.world
    fault = contract.Fault(reason="ResetFailed", message="The card does not come back.")
    cards.bench.change_card(0, reset_fails=fault)
    cards.put_gpu(0, "enabled")
    await world.until(lambda: cards.pending() is ON)
    cards.put_gpu(0, "disabled")
    await world.until(lambda: cards.said()[0] == "Applied")
    assert (cards.mode(), cards.pending()) == (OFF, OFF)


async def test_an_unknown_value_is_told_on_the_node_and_the_card(cards: Cards) -> None:
    world = cards.world
    cards.label_node("on")
    await world.until(lambda: cards.said(0)[0] == cards.said(1)[0] == "ChoiceInvalid")
    for part in (LABEL, "on", "enabled, disabled"):
        assert part in cards.said()[1]
    await world.until(lambda: world.events().count("MigModeInvalid") == 1)
    assert (cards.mode(0), cards.tainted()) == (OFF, set())


async def test_cards_that_follow_the_claims_say_that_the_choice_is_not_needed(
    cards: Cards,
) -> None:
    for index in (0, 1):
        cards.bench.change_reading(index, dynamic=True)
    cards.label_node("disabled")
    await cards.world.until(lambda: cards.said()[0] == "NotNeeded")


async def test_claims_of_other_cards_do_not_wait_while_a_card_is_reset(
    cards: Cards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changing, "WAIT_SECONDS", 0.1)
    world = cards.world
    cards.bench.change_card(0, reset_hangs=True)
    cards.put_gpu(0, "enabled")
    await world.until(lambda: cards.pending() is ON)
    other = world.claim("other", 0, device=SECOND)
    async with asyncio.timeout(5):
        assert (await world.kubelet.prepare(other))["uid-other"].error == ""
        await world.kubelet.unprepare(other)
    late = world.claim("late", 0, device=FIRST)
    async with asyncio.timeout(5):
        refused = (await world.kubelet.prepare(late))["uid-late"].error
    assert refused.startswith("CardChanging: ")
    assert ADDRESSES[0] in refused
    world.forget_claim("late")
    cards.bench.change_card(0, reset_hangs=False)
    await world.until(lambda: cards.said()[0] == "Applied")


async def test_a_claim_waits_a_while_for_the_card_that_is_reset(cards: Cards) -> None:
    """The kubelet comes again only after a minute."""
    world = cards.world
    cards.bench.change_card(0, reset_hangs=True)
    cards.put_gpu(0, "enabled")
    await world.until(lambda: cards.pending() is ON)
    soon = asyncio.create_task(world.kubelet.prepare(world.claim("soon", 0, device=FIRST_PART)))
    cards.bench.change_card(0, reset_hangs=False)
    assert (await soon)["uid-soon"].error == ""
    assert cards.mode() is ON


@pytest.mark.parametrize("who", ["plugin", "adapter", "both"])
async def test_whoever_ends_while_a_card_is_reset_the_mode_comes(cards: Cards, who: str) -> None:
    world = cards.world
    cards.bench.change_card(0, reset_hangs=True)
    cards.put_gpu(0, "enabled")
    await world.until(lambda: cards.pending() is ON)
    if who in ("plugin", "both"):
        await world.stop()
    if who in ("adapter", "both"):
        await cards.stop_adapter()
        assert cards.mode() is OFF
        await cards.start_adapter()
    if who in ("plugin", "both"):
        await world.start()
    cards.bench.change_card(0, reset_hangs=False)
    await world.until(lambda: cards.mode() is ON)
    await world.until(lambda: cards.said()[0] == "Applied")
    await world.until(lambda: cards.offered(0) == {"mig"} and not cards.tainted())
    assert cards.offered(1) == {"gpu"}


async def test_processes_that_are_killed_on_the_way_leave_what_the_next_goes_on_with(
    stopped: World,
) -> None:
    """Both are real processes here, and end by SIGKILL: with new claims kept off, during the reset
    of the first card, and between the two."""
    world, plugin = stopped, Plugin(stopped)
    await world.adapter.stop()
    cards = Cards(world)
    cards.bench.write(machine.partitionable(2, dynamic=False))
    put_class(world, "parts")
    for index in (0, 1):
        cards.put_gpu(index)
    adapter = await launch_adapter(world)
    try:
        await plugin.start()
        await world.published(2)
        cards.bench.change_card(0, reset_hangs=True)
        cards.label_node("enabled")
        await world.until(lambda: cards.tainted() == {FIRST, SECOND})
        await plugin.kill()
        await plugin.start()
        await world.until(lambda: cards.pending() is ON)
        await plugin.kill()
        await end(adapter)
        assert [cards.mode(0), cards.mode(1)] == [OFF, OFF]
        cards.bench.change_card(0, reset_hangs=False)
        adapter = await launch_adapter(world)
        await plugin.start()
        await world.until(lambda: ON in (cards.mode(0), cards.mode(1)))
        await end(adapter)
        adapter = await launch_adapter(world)
        await world.until(lambda: [cards.mode(0), cards.mode(1)] == [ON, ON])
        await world.until(lambda: cards.said(0)[0] == cards.said(1)[0] == "Applied")
        await world.published(2 * PLACES)
        await world.until(lambda: cards.tainted() == set())
    finally:
        await plugin.kill()
        await end(adapter)


async def launch_adapter(world: World) -> asyncio.subprocess.Process:
    """The adapter as a process of its own."""
    environment = {
        "GPUDECK_SOCKET": str(world.adapter.socket),
        "GPUDECK_HOST_ROOT": str(world.folder),
        "GPUDECK_POLL_SECONDS": "0.2",
    }
    return await asyncio.create_subprocess_exec(
        *(str(GPUDECK), "adapter", "simulated"),
        env={**os.environ, **environment},
        stderr=asyncio.subprocess.DEVNULL,
    )


async def end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def test_a_restart_keeps_claims_off_a_card_that_is_about_to_change(cards: Cards) -> None:
    world = cards.world
    claim = world.claim("train", 0, device=FIRST)
    assert (await world.kubelet.prepare(claim))["uid-train"].error == ""
    cards.put_gpu(0, "enabled")
    await world.until(lambda: cards.tainted() == {FIRST})
    writes = len(world.api.writes)
    await world.restart()
    await world.until(lambda: any("physicalgpus" in each.path for each in world.api.seen[-50:]))
    await world.until(lambda: cards.said()[0] == "WaitingForClaims")
    slices = [each for each in world.api.writes[writes:] if "resourceslices" in each.path]
    assert slices == []
