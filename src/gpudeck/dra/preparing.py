# SPDX-License-Identifier: Apache-2.0
"""Prepare and unprepare claims: the flow of the kubelet's two calls.

A claim that is prepared already is answered from the checkpoint, if need be without the
API server and the adapter; only its CDI spec is looked after, and made anew when the
driver's version has changed since, because the files that it names are gone then. Where
the API server answers and has allocated it anew meanwhile (a kubelet that has lost its
state does not give back what was before), its earlier devices are released first. Another
claim needs its object from the API, free devices and the adapter's edits; then, in this order:
PrepareStarted in the checkpoint, the adapter, the CDI specs, PrepareCompleted. So a kill at
any point leaves a state from which the next call, or `ledger.clean`, goes on. Unprepare
works backwards and needs neither: what the adapter made (a partition, the use of an MPS
daemon) and cannot undo now stays in the checkpoint as Released, until `release` has had it
removed. What concerns one claim is its own error; others go on.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from gpudeck import logs
from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import labels, names, resource, resources
from gpudeck.cdi.files import Folder
from gpudeck.devices.identities import PciAddress
from gpudeck.dra import (
    adapters,
    edits,
    exposing,
    fetching,
    holders,
    ledger,
    metadata,
    modes,
    recovering,
    releasing,
    requesting,
)
from gpudeck.dra.allocations import HeldDevice, Reference
from gpudeck.dra.checkpoint import Content, Entry, Given, Metadata, State
from gpudeck.errors import BusyError, GpudeckError, NotFoundError, UnavailableError
from gpudeck.kube import client

log = logs.get(__name__)

Outcome = Entry | GpudeckError
"""The entry of a prepared claim, or why there is none."""


@dataclasses.dataclass
class Fresh:
    """A claim on its way from nothing to prepared; `before` comes back if it fails."""

    claim: Reference
    devices: list[HeldDevice]
    before: Entry | None
    told: Metadata | None
    """What its containers will be told, still without attributes."""


class Preparer:
    """Does the work behind NodePrepareResources and NodeUnprepareResources."""

    def __init__(
        self,
        api: client.Client,
        adapter: adapters.Adapter,
        book: ledger.Ledger,
        folder: Folder,
        *,
        exposure: exposing.Exposure,
        node_name: str,
        hook_path: Callable[[], str],
        late: Callable[[Reference, HeldDevice], None] = lambda claim, device: None,
    ) -> None:
        self._api = api
        self._adapter = adapter
        self._ledger = book
        self._releasing = releasing.Releasing(adapter, book, folder, exposure)
        self._folder = folder
        self._exposure = exposure
        self._node_name = node_name
        self._reader = fetching.Reader(api, node_name, checks_names=exposure.is_wanted)
        self._hook_path = hook_path
        self._late = late
        """Told of a claim whose device needs the card in its other partition mode."""

    async def prepare(self, claims: Sequence[Reference]) -> dict[str, Outcome]:
        """Prepare claims; the answer has an outcome for each UID. May be repeated.

        Raises BusyError when other claims keep the node busy.
        """
        known = self._ledger.glance()
        fetched = await self._reader.fetch(claims, known)
        away: GpudeckError | None = None
        if any(fetching.is_to_be_made(known, uid, each) for uid, each in fetched.items()):
            try:
                await self._adapter.reach()
            except UnavailableError as error:
                away = error
            await self._ledger.changing.over(self._in_the_way(known, fetched))
        async with self._ledger.opened() as content:
            recovering.place(content, self._placed)
            refused = await self._drop_earlier(content, claims, fetched)
            rest = [claim for claim in claims if claim.uid not in refused]
            return {**refused, **await self._prepare(content, rest, fetched, away)}

    def _in_the_way(
        self, known: Content, fetched: Mapping[str, fetching.Fetched]
    ) -> Collection[str]:
        """The cards that must not be reset for the claims to be made: any, if it takes the maker's
        library, which is ended for a reset."""
        devices = [
            device
            for uid, each in fetched.items()
            if fetching.is_to_be_made(known, uid, each) and isinstance(each, fetching.Allocated)
            for device in each.devices
        ]
        if any(device.is_made for device in devices):
            return self._adapter.cards or ()
        found = (names.address_of_device(device.name) for device in devices)
        return {names.gpu_device_name(address) for address in found if address is not None}

    async def unprepare(self, claims: Sequence[Reference]) -> dict[str, GpudeckError | None]:
        """Give claims back; unknown ones succeed. Neither API server nor adapter is needed."""
        known = self._ledger.glance()
        refused = await self._releasing.give_back(known, claims)
        async with self._ledger.opened() as content:
            await self._releasing.drop(
                content, [claim for claim in claims if claim.uid not in refused]
            )
        return {claim.uid: refused.get(claim.uid) for claim in claims}

    async def collect(
        self,
        claims: Sequence[Reference],
        is_free: Callable[[str, Entry], Awaitable[bool]],
    ) -> list[str]:
        """Give back those claims that are still free when the lock is held; returns their UIDs.

        Raises BusyError when claims keep the node busy, and what `is_free` raises.
        """
        async with self._ledger.opened() as content:
            free = [
                claim
                for claim in claims
                if (entry := content.claims.get(claim.uid)) is not None
                and await is_free(claim.uid, entry)
            ]
            refused = await self._releasing.give_back(content, free)
            done = [claim for claim in free if claim.uid not in refused]
            await self._releasing.drop(content, done)
        return [claim.uid for claim in done]

    async def _drop_earlier(
        self, content: Content, claims: Sequence[Reference], fetched: Mapping[str, fetching.Fetched]
    ) -> dict[str, GpudeckError]:
        """Give back what claims held before they were allocated anew; return those refused."""
        moved = [
            claim
            for claim in claims
            if (entry := content.claims.get(claim.uid)) is not None
            and entry.state is not State.RELEASED
            and fetching.is_moved(entry, fetched[claim.uid])
        ]
        if not moved:
            return {}
        log.warning("Claims were allocated anew", claims=",".join(map(str, moved)))
        refused = await self._releasing.give_back(content, moved)
        await self._releasing.drop(content, [claim for claim in moved if claim.uid not in refused])
        return refused

    async def release(self) -> bool:
        """Have the adapter remove what claims that were given back have left; may be repeated.

        Returns whether nothing is left. Raises BusyError when claims keep the node busy.
        """
        if not releasing.released(self._ledger.glance()):
            return True
        async with self._ledger.opened() as content:
            await self._releasing.release(content)
            return not releasing.released(content)

    async def _prepare(
        self,
        content: Content,
        claims: Sequence[Reference],
        fetched: Mapping[str, fetching.Fetched],
        away: GpudeckError | None,
    ) -> dict[str, Outcome]:
        """`away` says why the adapter cannot be asked."""
        outcomes: dict[str, Outcome] = {}
        fresh: list[Fresh] = []
        await self._releasing.release(content)
        for claim in claims:
            entry = content.claims.get(claim.uid)
            try:
                if entry is not None and entry.state is State.COMPLETED:
                    outcomes[claim.uid] = await self._repeat(content, claim, entry)
                else:
                    found = fetched[claim.uid]
                    wanted = found if away is None or isinstance(found, GpudeckError) else away
                    fresh.append(await self._begin(content, claim, wanted))
            except GpudeckError as error:
                outcomes[claim.uid] = error
        if fresh:
            outcomes |= await self._finish(content, fresh)
        return outcomes

    async def _repeat(self, content: Content, claim: Reference, entry: Entry) -> Entry:
        """Answer for a prepared claim, after making its files again if need be."""
        driver = self._driver(entry.devices) if self._adapter.is_connected else None
        if driver not in (None, entry.driver_version):
            entry = await self._refresh(content, claim, entry)
        if not self._is_whole(claim, entry):
            await ledger.whole(self._restore, claim, entry)
        return entry

    async def restore(self) -> None:
        """Make files of prepared claims again that somebody has removed or changed.

        The kubelet (1.37) asks once for each sandbox of a pod, and a container that starts again
        in it needs them. Raises BusyError when claims keep the node busy, another GpudeckError
        where the disk takes no file.
        """
        if not await asyncio.to_thread(self._damaged, self._ledger.glance()):
            return
        async with self._ledger.opened() as content:
            for claim, entry in self._damaged(content):
                await ledger.whole(self._restore, claim, entry)

    def _damaged(self, content: Content) -> list[tuple[Reference, Entry]]:
        """The prepared claims whose files are not as they should be."""
        prepared = (
            (Reference(uid, entry.namespace, entry.name), entry)
            for uid, entry in content.claims.items()
            if entry.state is State.COMPLETED
        )
        return [(claim, entry) for claim, entry in prepared if not self._is_whole(claim, entry)]

    def _is_whole(self, claim: Reference, entry: Entry) -> bool:
        is_whole = self._folder.read(claim.uid) == _spec(entry)
        return is_whole and self._exposure.is_whole(claim, entry)

    def _restore(self, claim: Reference, entry: Entry) -> None:
        """Make the files of a claim be as they should. In a thread."""
        if self._folder.read(claim.uid) != _spec(entry):
            log.warning("Making a CDI spec again", claim=claim, uid=claim.uid)
            self._folder.write(claim.uid, _spec(entry))
        if not self._exposure.is_whole(claim, entry):
            log.warning("Telling containers of their devices again", claim=claim, uid=claim.uid)
            self._exposure.write(claim, entry)

    async def _refresh(self, content: Content, claim: Reference, entry: Entry) -> Entry:
        """Have the adapter describe the devices anew; without success the old entry stays."""
        fresh = Fresh(claim, entry.devices, entry, entry.metadata)
        try:
            answer = await self._adapter.prepare(self._request([fresh]))
            (prepared,) = answer.claims
            spec = edits.spec_of(claim, _keys(entry.devices), prepared)
        except (GpudeckError, ValueError) as error:
            log.warning("Cannot renew a CDI spec", claim=claim, uid=claim.uid, error=error)
            return entry
        given = _given(prepared)
        renewed = msgspec.structs.replace(
            entry,
            spec=spec.decode(),
            driver_version=self._driver(entry.devices),
            given=given,
            metadata=self._told(fresh, given),
        )
        content.claims[claim.uid] = renewed
        await ledger.whole(self._ledger.write, content)
        return renewed

    def _driver(self, devices: Sequence[HeldDevice]) -> str | None:
        """The version of the driver that serves the devices; None when it is not known."""
        found = (self._adapter.card_of(each) for each in devices)
        return next((card.driver.version for card in found if card and card.driver.version), None)

    async def _begin(self, content: Content, claim: Reference, fetched: fetching.Fetched) -> Fresh:
        """Check everything that may refuse a claim and enter it, in memory, as started."""
        if isinstance(fetched, GpudeckError):
            raise fetched
        if content.is_partial:
            await self._add_claims(content)
        devices = [self._described(device) for device in fetched.devices]
        self._check_modes(claim, devices)
        before = content.claims.get(claim.uid)
        if before is not None and before.holds_made and fetching.is_moved(before, fetched):
            raise UnavailableError(
                f"claim {claim}: what was made for its last allocation is still to be removed",
                reason="DeviceBeingReleased",
            )
        await holders.check_free(self._api, content, claim, devices)
        content.claims[claim.uid] = Entry(
            state=State.STARTED, namespace=claim.namespace, name=claim.name, devices=devices
        )
        told = Metadata(pod_claim_name=fetched.pod_claim_name) if self._exposure.is_wanted else None
        return Fresh(claim, devices, before, told)

    async def _add_claims(self, content: Content) -> None:
        """Finish a rebuilt checkpoint with the claims that the API server knows."""
        listed = await self._api.list(resources.RESOURCE_CLAIM, resource.ResourceClaim)
        recovering.add_claims(content, listed.items, self._node_name, self._placed)
        content.is_partial = False

    async def _finish(self, content: Content, fresh: Sequence[Fresh]) -> dict[str, Outcome]:
        """Have the adapter prepare, write the specs, and only then complete the entries."""
        request = self._request(fresh)
        if any(device.is_made for each in fresh for device in each.devices):
            # The entry is what tells after a kill that what was made is ours.
            await ledger.whole(self._ledger.write, content)
            written = None
        else:
            # For the rest the adapter makes nothing, so it need not wait for the entry.
            written = ledger.whole(self._ledger.write, content)
        asked = asyncio.create_task(self._adapter.prepare(request))
        try:
            if written is not None:
                await written
            answer = await asked
        except UnavailableError as error:
            # An adapter that does not answer leaves the claims started: nobody knows what it did.
            return {each.claim.uid: error for each in fresh}
        finally:
            asked.cancel()
        answers = {each.uid: each for each in answer.claims}
        return await ledger.whole(self._complete, content, fresh, answers)

    def _complete(
        self,
        content: Content,
        fresh: Sequence[Fresh],
        answers: Mapping[str, adapter_pb2.PreparedClaim],
    ) -> dict[str, Outcome]:
        """Write the specs of what the adapter prepared, then the checkpoint. In a thread."""
        outcomes: dict[str, Outcome] = {}
        for each in fresh:
            uid = each.claim.uid
            try:
                content.claims[uid] = self._settle(content.claims[uid], each, answers.get(uid))
                outcomes[uid] = content.claims[uid]
            except GpudeckError as error:
                outcomes[uid] = error
                self._take_back(content, each, answers.get(uid))
        self._ledger.write(content)
        return outcomes

    def _take_back(
        self, content: Content, fresh: Fresh, answer: adapter_pb2.PreparedClaim | None
    ) -> None:
        """Leave a claim as it was before; what was made for it all the same is to be removed."""
        uid = fresh.claim.uid
        if fresh.before is None:
            self._exposure.remove(uid)
        is_refused = answer is not None and answer.HasField("error")
        if fresh.before is not None:
            content.claims[uid] = fresh.before
        elif is_refused or not content.claims[uid].holds_made:
            # An adapter that refuses has made nothing, or has undone it.
            content.forget(uid)
        else:
            content.claims[uid] = content.claims[uid].released()

    def _settle(
        self, entry: Entry, fresh: Fresh, answer: adapter_pb2.PreparedClaim | None
    ) -> Entry:
        keys = _keys(fresh.devices)
        spec = edits.spec_of(fresh.claim, keys, answer)
        given = _given(answer)
        completed = msgspec.structs.replace(
            entry,
            state=State.COMPLETED,
            spec=spec.decode(),
            driver_version=self._driver(fresh.devices),
            given=given,
            metadata=self._told(fresh, given),
        )
        self._exposure.write(fresh.claim, completed)
        self._folder.write(fresh.claim.uid, spec)
        log.info("Prepared a claim", claim=fresh.claim, uid=fresh.claim.uid, devices=",".join(keys))
        return completed

    def _told(self, fresh: Fresh, given: Mapping[str, Given]) -> Metadata | None:
        if fresh.told is None:
            return None
        found = metadata.describe(fresh.devices, self._adapter.card_of, given, self._adapter.vendor)
        return msgspec.structs.replace(fresh.told, attributes=found)

    def _request(self, fresh: Iterable[Fresh]) -> adapter_pb2.PrepareRequest:
        return adapter_pb2.PrepareRequest(
            claims=[self._claim_request(each.claim, each.devices) for each in fresh],
            hook_path=self._hook_path(),
        )

    def _claim_request(
        self, claim: Reference, devices: Sequence[HeldDevice]
    ) -> adapter_pb2.ClaimRequest:
        return adapter_pb2.ClaimRequest(
            claim=adapter_pb2.ClaimReference(
                uid=claim.uid, namespace=claim.namespace, name=claim.name
            ),
            devices=[
                requesting.device(each, self._adapter.card_of(each))
                for each in {device.key: device for device in devices}.values()
            ],
        )

    def _placed(self, device: HeldDevice) -> HeldDevice:
        return requesting.placed(device, self._adapter.card_of(device))

    def _described(self, device: HeldDevice) -> HeldDevice:
        """The device with what only its card tells. Raises an error where that is not to be had."""
        if self._adapter.cards is None:
            raise UnavailableError(
                "the adapter on this node has not reported its cards yet",
                reason="AdapterUnavailable",
            )
        card = self._adapter.card_of(device)
        if card is None:
            raise NotFoundError(
                f"device {device.name}: no such card on node {self._node_name} now",
                reason="CardNotFound",
            )
        return requesting.described(device, card)

    def _check_modes(self, claim: Reference, devices: Sequence[HeldDevice]) -> None:
        """Refuse a claim for a card that is being reset, or was since the claim was allocated."""
        for device in devices:
            card = self._adapter.card_of(device)
            if card is None:
                continue
            place = PciAddress.parse(card.pci_address)
            if self._ledger.changing.includes(names.gpu_device_name(place)):
                raise BusyError(
                    f"device {device.name}: the partitioning mode of card {card.pci_address} is "
                    "being changed",
                    reason="CardChanging",
                )
            if modes.is_misfit(device, card):
                self._late(claim, device)
                mode = "on" if modes.is_enabled(card) else "off"
                raise UnavailableError(
                    f"device {device.name}: the partitioning mode of card {card.pci_address} is "
                    f"{mode} now, and this device needs the other one; where the label "
                    f"{labels.MIG_MODE} chose the mode, it is changed for the claim when nobody "
                    "holds the card",
                    reason="ModeMismatch",
                )


def _keys(devices: Iterable[HeldDevice]) -> list[str]:
    return [device.key for device in devices]


def _given(answer: adapter_pb2.PreparedClaim | None) -> dict[str, Given]:
    return {
        each.name: Given(
            uuid=each.uuid,
            limits_memory=each.limits_memory,
            limits_memory_message=each.limits_memory_message,
        )
        for each in (answer.devices if answer is not None else ())
    }


def _spec(entry: Entry) -> bytes:
    return (entry.spec or "").encode()
