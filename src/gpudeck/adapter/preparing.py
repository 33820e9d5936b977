# SPDX-License-Identifier: Apache-2.0
"""Makes ready what claims ask for, says what their containers need, and gives it back.

Called by `server`. `planning` decides, this does it through the supervisor. Requests that
change cards take turns; claims for whole cards that are not partitioned need nothing done,
and so wait for nobody and enter no library. An unhealthy card is not refused here: the
scheduler knows of it by its taint, and a claim that tolerates the taint means it. Keeps
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from gpudeck import errors, logs
from gpudeck.adapter import planning, wire
from gpudeck.adapter.v1 import adapter_pb2 as pb
from gpudeck.vendors import contract, records

log = logs.get(__name__)

Act = Callable[[str, contract.Action], Awaitable[contract.Partition | None]]
"""`Supervisor.act`: when it answers, the inventory has the outcome."""
Inventory = Callable[[], records.Inventory]
"""The inventory of now."""

_Change = tuple[str, contract.RemovePartition]


class _Claim(msgspec.Struct):
    """One claim on its way to an answer."""

    asked: pb.ClaimRequest
    uses: list[contract.Use] = msgspec.field(default_factory=list)
    made: list[_Change] = msgspec.field(default_factory=list)
    """How to remove what was made for this request, in the order of the making."""
    answer: pb.PreparedClaim | None = None

    def fail(self, error: errors.GpudeckError) -> None:
        self.answer = pb.PreparedClaim(uid=self.asked.claim.uid, error=wire.error(error))


class Preparing:
    """Prepare and Unprepare of one maker's cards."""

    def __init__(self, vendor: contract.Vendor, inventory: Inventory, act: Act) -> None:
        self._vendor = vendor
        self._inventory = inventory
        self._act = act
        self._shared = wire.Shared()
        self._turn = asyncio.Lock()

    async def prepare(self, request: pb.PrepareRequest) -> pb.PrepareResponse:
        """Answer for each claim on its own."""
        claims = [_Claim(asked) for asked in request.claims]
        async with self._turn if self._changes(request) else contextlib.nullcontext():
            for claim in claims:
                await self._make_ready(claim)
            ready = [claim for claim in claims if claim.answer is None]
            await asyncio.to_thread(self._describe, ready, request.hook_path)
            for claim in claims:
                if claim.answer is not None and claim.answer.HasField("error"):
                    await self._undo(claim)
        answers = [claim.answer for claim in claims if claim.answer is not None]
        return pb.PrepareResponse(claims=answers)

    async def unprepare(self, request: pb.UnprepareRequest) -> pb.UnprepareResponse:
        """Remove the partitions of each claim; all else leaves nothing behind."""
        return pb.UnprepareResponse(
            claims=[await self._unprepare_claim(each) for each in request.claims]
        )

    def _changes(self, request: pb.PrepareRequest) -> bool:
        cards = {card.site.address: card.reading for card in self._inventory().cards}
        for claim in request.claims:
            for device in claim.devices:
                card = cards.get(device.pci_address)
                if device.WhichOneof("part") is not None:
                    return True
                if card is not None and planning.actions(card, device):
                    return True
        return False

    async def _make_ready(self, claim: _Claim) -> None:
        try:
            for device in claim.asked.devices:
                claim.uses.append(await self._use(claim, device))
        except errors.GpudeckError as error:
            claim.fail(error)

    async def _use(self, claim: _Claim, device: pb.DeviceRequest) -> contract.Use:
        card = self._reading(device.pci_address)
        is_there = planning.find(card, device.partition) is not None
        partition: contract.Partition | None = None
        for action in planning.actions(card, device):
            if isinstance(action, contract.MakePartition) and not is_there:
                # Noted before: a failure of which nobody knows how far it came is undone too.
                claim.made.append((card.address, planning.removing(device.partition)))
            partition = await self._do(card.address, action)
        if device.HasField("partition") and partition is None:
            partition = _existing(card, device.partition)
        return contract.Use(
            card=self._reading(device.pci_address),
            partition=partition,
            share=planning.share(device.share) if device.HasField("share") else None,
            admin_access=device.admin_access,
        )

    async def _do(self, address: str, action: contract.Action) -> contract.Partition | None:
        try:
            return await self._act(address, action)
        except errors.UnsupportedError as error:
            if not isinstance(action, contract.SetTimeSlice):
                raise
            log.warning("Card keeps its time slice", card=address, why=error.message)
            return None

    def _describe(self, claims: Sequence[_Claim], hook_path: str) -> None:
        """In a thread, for the vendor reads files of the node."""
        version = self._inventory().driver.version
        for claim in claims:
            try:
                given = self._vendor.inject(claim.uses, driver_version=version, hook_path=hook_path)
            except errors.GpudeckError as error:
                claim.fail(error)
            else:
                claim.answer = pb.PreparedClaim(
                    uid=claim.asked.claim.uid,
                    shared=self._shared.edits(given.shared),
                    devices=_devices(claim, given.uses),
                )

    async def _undo(self, claim: _Claim) -> None:
        """Remove what this request made for the claim; what was there before stays."""
        for address, action in reversed(claim.made):
            try:
                await self._act(address, action)
            except errors.GpudeckError as error:
                log.warning(
                    "Cannot undo", card=address, claim=claim.asked.claim.uid, why=error.message
                )

    async def _unprepare_claim(self, claim: pb.ClaimRequest) -> pb.UnpreparedClaim:
        failed: errors.GpudeckError | None = None
        for device in claim.devices:
            if not device.HasField("partition") or device.admin_access:
                continue
            if not self._is_served(device.pci_address):
                continue  # What the driver made goes with the driver.
            try:
                async with self._turn:
                    await self._act(device.pci_address, planning.removing(device.partition))
            except errors.GpudeckError as error:
                failed = failed or error
        why = wire.error(failed) if failed is not None else None
        return pb.UnpreparedClaim(uid=claim.claim.uid, error=why)

    def _is_served(self, address: str) -> bool:
        cards = self._inventory().cards
        return any(card.site.address == address and card.site.served for card in cards)

    def _reading(self, address: str) -> contract.CardReading:
        inventory = self._inventory()
        for card in inventory.cards:
            if card.site.address != address:
                continue
            if not card.driver.ready or card.reading is None:
                raise errors.UnavailableError(
                    f"{address}: the driver does not serve the card now: {card.driver.message}",
                    reason="CardNotReady",
                )
            return card.reading
        known = ", ".join(card.site.address for card in inventory.cards) or "none"
        raise errors.UnavailableError(
            f"{address}: there is no such card on the node; there are: {known}.",
            reason="CardNotFound",
        )


def _existing(card: contract.CardReading, wanted: pb.PartitionRequest) -> contract.Partition:
    found = planning.find(card, wanted)
    if found is None:
        raise errors.UnavailableError(
            f"{card.address}: there is no partition {wanted.profile} at slice "
            f"{wanted.placement.start} now, and none is made for a claim with admin access.",
            reason="PartitionNotFound",
        )
    return found


def _devices(claim: _Claim, given: Sequence[contract.UseEdits]) -> list[pb.PreparedDevice]:
    return [
        pb.PreparedDevice(
            name=device.name,
            edits=wire.edits(edits.edits),
            uuid=(use.partition or use.card).uuid,
            limits_memory=edits.limits_memory,
            limits_memory_message=edits.limits_memory_message,
        )
        for device, use, edits in zip(claim.asked.devices, claim.uses, given, strict=True)
    ]
