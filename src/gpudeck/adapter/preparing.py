# SPDX-License-Identifier: Apache-2.0
"""Makes ready what claims ask for, says what their containers need, and gives it back.

Called by `server`. `planning` decides, this does it through the supervisor. Requests that
change cards take turns, and are refused while a card may be reset; claims for whole cards that
are not partitioned need nothing done, and so wait for nobody and enter no library. An
unhealthy card is not refused here: the scheduler knows of it by its taint, and a claim that
tolerates the taint means it. Keeps nothing.
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

_Change = tuple[str, contract.Action]

_PENDING_SECONDS, _LOOK_SECONDS = 6.0, 0.05
"""How long what was begun may take until it is there (below the plugin's deadline of a call)."""


class _Claim(msgspec.Struct):
    """One claim on its way to an answer."""

    asked: pb.ClaimRequest
    uses: list[contract.Use] = msgspec.field(default_factory=list)
    made: list[_Change] = msgspec.field(default_factory=list)
    """How to remove what was made for this request, in the order of the making."""
    answer: pb.PreparedClaim | None = None
    pending: str = ""
    """What the claim waits for; set where there is no answer yet."""

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
        self._changing: dict[str, asyncio.Task[pb.SetPartitioningResponse]] = {}
        """The cards whose mode is being changed, by address."""

    async def prepare(self, request: pb.PrepareRequest) -> pb.PrepareResponse:
        """Answer for each claim on its own."""
        claims = [_Claim(asked) for asked in request.claims]
        resetting = next(iter(self._changing), "")
        turn = self._turn if self._changes(request) and not resetting else contextlib.nullcontext()
        async with turn:
            for claim in claims:
                await self._make_ready(claim, resetting)
            await self._describe_all(claims, request.hook_path)
            for claim in claims:
                if claim.answer is not None and claim.answer.HasField("error"):
                    await self._undo(claim)
        answers = [claim.answer for claim in claims if claim.answer is not None]
        return pb.PrepareResponse(claims=answers)

    async def unprepare(self, request: pb.UnprepareRequest) -> pb.UnprepareResponse:
        """Undo what was made for each claim: partitions, and the use of an MPS daemon."""
        return pb.UnprepareResponse(
            claims=[await self._unprepare_claim(each) for each in request.claims]
        )

    async def set_partitioning(
        self, request: pb.SetPartitioningRequest
    ) -> pb.SetPartitioningResponse:
        """Change the mode of a card that needs a reset; it goes on when the caller gives up."""
        address = request.pci_address
        while (before := self._changing.get(address)) is not None:
            await asyncio.wait([before])
        task = asyncio.create_task(self._set_partitioning(request))
        self._changing[address] = task
        task.add_done_callback(lambda _: self._changing.pop(address))
        return await asyncio.shield(task)

    async def _set_partitioning(
        self, request: pb.SetPartitioningRequest
    ) -> pb.SetPartitioningResponse:
        action = contract.SetPartitioning(enabled=request.enabled, may_reset=True)
        try:
            async with self._turn:
                await self._act(request.pci_address, action)
        except errors.GpudeckError as error:
            return pb.SetPartitioningResponse(error=wire.error(error))
        return pb.SetPartitioningResponse()

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

    async def _make_ready(self, claim: _Claim, resetting: str) -> None:
        """`resetting` is a card whose mode was being changed when the request came, "" for none."""
        try:
            planning.check(claim.asked.devices)
            for device in claim.asked.devices:
                claim.uses.append(await self._use(claim, device, resetting))
        except errors.GpudeckError as error:
            claim.fail(error)

    async def _use(self, claim: _Claim, device: pb.DeviceRequest, resetting: str) -> contract.Use:
        if device.pci_address in self._changing:
            raise _changing(device.pci_address)
        card = self._reading(device.pci_address)
        partition: contract.Partition | None = None
        actions = planning.actions(card, device)
        if actions and resetting:
            raise _changing(resetting)
        for action in actions:
            undoing = planning.undoing(device)
            if undoing is not None and _is_new(card, action):
                # Noted before: a failure of which nobody knows how far it came is undone too.
                claim.made.append((card.address, undoing))
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
            claim.pending = " ".join(filter(None, map(self._vendor.pending, claim.uses)))
            if claim.pending:
                continue
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

    async def _describe_all(self, claims: Sequence[_Claim], hook_path: str) -> None:
        """Answer every claim that has no answer, when what was begun for it is there."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + _PENDING_SECONDS
        waiting = [claim for claim in claims if claim.answer is None]
        while waiting:
            await asyncio.to_thread(self._describe, waiting, hook_path)
            waiting = [claim for claim in waiting if claim.answer is None]
            if waiting and loop.time() > ends:
                for claim in waiting:
                    claim.fail(errors.UnavailableError(claim.pending, reason="CardNotReady"))
                return
            if waiting:
                await asyncio.sleep(_LOOK_SECONDS)

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
            undoing = planning.undoing(device)
            if undoing is None or not self._is_served(device.pci_address):
                continue  # What the driver made goes with the driver.
            try:
                for resetting in self._changing:
                    raise _changing(resetting)
                async with self._turn:
                    await self._act(device.pci_address, undoing)
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


def _changing(address: str) -> errors.BusyError:
    """The refusal while a card may be reset: the library, which opens all cards, is ended then."""
    return errors.BusyError(
        f"{address}: the partitioning mode of the card is being changed; until that is done, "
        "nothing is changed on other cards either.",
        reason="CardChanging",
    )


def _is_new(card: contract.CardReading, action: contract.Action) -> bool:
    """Whether the action makes what was not there when the card was read."""
    match action:
        case contract.MakePartition(profile_id=profile_id, placement=place):
            return not any(
                (each.profile_id, each.start, each.size) == (profile_id, place.start, place.size)
                for each in card.partitions
            )
        case contract.JoinMps(share_id=share_id):
            return share_id not in card.mps_shares
    return False


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
