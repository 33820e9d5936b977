# SPDX-License-Identifier: Apache-2.0
"""Write into each prepared claim what its devices are: `status.devices` (KEP-4817).

`main` runs it beside the plugin's other writers. It reads the checkpoint and the adapter's
cards and is never in the way of a call of the kubelet: the queue coalesces and repeats.
Each entry names the UUID that containers see (a dynamic partition has one only since
Prepare), the card, what was agreed on, and two conditions. The API server itself drops
entries when a claim is deallocated (1.33 and later); a claim that is given back while
allocated loses ours by an empty apply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gpudeck import logs
from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import conditions, labels, names, resource, resources
from gpudeck.api.meta import Condition, ObjectMeta
from gpudeck.dra import adapters, fetching, ledger
from gpudeck.dra.allocations import HeldDevice
from gpudeck.dra.checkpoint import Entry, Given, State
from gpudeck.errors import ConflictError, NotFoundError
from gpudeck.kube import client, queueing, recording

log = logs.get(__name__)

HEALTHY = "Healthy"
MESSAGE_LIMIT = 32768
"""Characters that the API server takes in the message of a condition."""

_VERDICTS = {
    adapter_pb2.VERDICT_HEALTHY: conditions.TRUE,
    adapter_pb2.VERDICT_UNHEALTHY: conditions.FALSE,
}

Devices = list[resource.ClaimDeviceStatus]


def wanted(entry: Entry, cards: Mapping[str, adapter_pb2.Card], pool: str) -> Devices:
    """What is to be said of a completed claim; transition times are still to be set. Pure."""
    by_key = {device.key: device for device in entry.devices}
    given = entry.given or {}
    return [
        _described(device, given.get(key, Given()), _card(device, cards), pool)
        for key, device in sorted(by_key.items())
    ]


def same(found: Devices, said: Devices) -> bool:
    """Whether both say the same, whenever they said it first."""
    return [_timeless(each) for each in found] == [_timeless(each) for each in said]


def _card(device: HeldDevice, cards: Mapping[str, adapter_pb2.Card]) -> adapter_pb2.Card | None:
    address = names.address_of_device(device.name)
    return cards.get(names.gpu_device_name(address)) if address is not None else None


def _described(
    device: HeldDevice, given: Given, card: adapter_pb2.Card | None, pool: str
) -> resource.ClaimDeviceStatus:
    return resource.ClaimDeviceStatus(
        driver=labels.DRIVER,
        pool=device.pool or pool,
        device=device.name,
        share_id=device.share_id,
        conditions=[
            Condition(
                type=conditions.READY,
                status=conditions.TRUE,
                reason="Prepared",
                message="Containers of the claim can use the device.",
            ),
            _health(card),
        ],
        data=msgspec.Raw(msgspec.json.encode(_facts(device, given, card), order="sorted")),
    )


def _health(card: adapter_pb2.Card | None) -> Condition:
    if card is None:
        return Condition(
            type=HEALTHY,
            status=conditions.UNKNOWN,
            reason="CardNotSeen",
            message="The adapter on the node does not see the card.",
        )
    return Condition(
        type=HEALTHY,
        status=_VERDICTS.get(card.health.verdict, conditions.UNKNOWN),
        reason=card.health.reason or "Unknown",
        message=card.health.message[:MESSAGE_LIMIT],
    )


def _facts(
    device: HeldDevice, given: Given, card: adapter_pb2.Card | None
) -> dict[str, str | int | dict[str, int]]:
    """Memory in bytes, cores in percent, placements in memory slices."""
    found: dict[str, str | int | dict[str, int] | None] = {"uuid": given.uuid}
    address, named = names.address_of_device(device.name), names.parse_device(device.name)
    found["pciBusID"] = str(address) if address is not None else None
    if named is not None and named.start is not None:
        found["parentUUID"] = card.uuid if card is not None else None
        found["profile"] = device.profile
        found["placement"] = {"start": named.start, "size": device.size} if device.size else None
    elif card is not None:
        found["gpuUUID"] = card.uuid
    if device.memory is not None:
        found["memory"] = device.memory
        found["memoryLimit"] = "Driver" if given.limits_memory else "None"
        found["memoryLimitMessage"] = given.limits_memory_message
    found["cores"] = device.cores
    return {name: value for name, value in found.items() if value is not None and value != ""}


def _timeless(each: resource.ClaimDeviceStatus) -> tuple[Any, ...]:
    states = sorted(
        (one.type, one.status, one.reason, one.message) for one in each.conditions or ()
    )
    facts = None if each.data is msgspec.UNSET else msgspec.json.decode(each.data)
    return each.pool, each.device, each.share_id, states, facts


class ClaimStatus:
    """Keeps `status.devices` of the claims that are prepared on this node."""

    def __init__(
        self, api: client.Client, adapter: adapters.Adapter, book: ledger.Ledger, node_name: str
    ) -> None:
        self._api = api
        self._adapter = adapter
        self._ledger = book
        self._pool = names.pool_name(node_name)
        self._queue = queueing.Queue("claims", limit_seconds=60.0)
        self._written: dict[str, tuple[Entry, Devices | None]] = {}
        """What each claim was told last; None where the claim is gone or another has its name."""
        self._kept = True

    async def run(self) -> None:
        """Write for ever."""
        self._loop = asyncio.get_running_loop()
        self._ledger.subscribe(self._held_changed)
        self._adapter.subscribe(self._all)
        self._all()
        await self._queue.work(self._write, workers=2)

    def _held_changed(self) -> None:
        # The checkpoint is written in threads.
        self._loop.call_soon_threadsafe(self._all)

    def _all(self) -> None:
        for uid in {*self._completed(), *self._written}:
            self._queue.add(uid)

    def _completed(self) -> dict[str, Entry]:
        found = self._ledger.glance().claims
        return {uid: each for uid, each in found.items() if each.state is State.COMPLETED}

    async def _write(self, uid: str) -> None:
        entry = self._completed().get(uid)
        if entry is None:
            await self._clear(uid)
        elif self._kept and entry.name and self._adapter.cards is not None:
            known = self._written.get(uid)
            before = known[1] if known is not None else await self._found(uid, entry)
            said = wanted(entry, self._adapter.cards, self._pool)
            if before is None or same(before, said):
                self._written[uid] = entry, before
                return
            self._timed(said, before)
            answer = await self._apply(uid, entry, said)
            self._look_at(answer)
            self._written[uid] = entry, None if answer is None else said

    async def _clear(self, uid: str) -> None:
        known = self._written.get(uid)
        if known is not None and known[1] and self._kept:
            await self._apply(uid, known[0], [])
        self._written.pop(uid, None)

    async def _found(self, uid: str, entry: Entry) -> Devices | None:
        """What the claim says of our devices now; None if it is gone or another claim."""
        claim = await fetching.claim(self._api, uid, entry)
        if claim is None:
            return None
        return _ours(claim.status.devices if claim.status else None)

    async def _apply(self, uid: str, entry: Entry, said: Devices) -> Devices | None:
        """Write; the answer's devices of ours, None if the claim is gone or another claim."""
        body = resource.ResourceClaim(
            metadata=ObjectMeta(name=entry.name, namespace=entry.namespace, uid=uid),
            status=resource.ClaimStatus(devices=said),
        )
        try:
            answer = await self._api.apply(
                resources.RESOURCE_CLAIM,
                body,
                resource.ResourceClaim,
                manager=labels.MANAGER_DRA_PLUGIN,
                subresource="status",
            )
        except (NotFoundError, ConflictError) as error:
            # Forced applies conflict about the UID alone.
            log.debug("The claim is gone", claim=entry, uid=uid, error=error)
            return None
        return _ours(answer.status.devices if answer.status else None)

    def _timed(self, said: Devices, before: Devices) -> None:
        now = recording.timestamp()
        known = {(each.device, each.share_id): each.conditions for each in before}
        for each in said:
            old = known.get((each.device, each.share_id))
            each.conditions = conditions.merge(old, each.conditions or (), now)

    def _look_at(self, answer: Devices | None) -> None:
        """Stop where the API server keeps nothing: its gate DRAResourceClaimDeviceStatus is off."""
        if answer is not None and not answer:
            self._kept = False
            log.warning("The API server does not keep status.devices of claims; none is written")


def _ours(found: Iterable[resource.ClaimDeviceStatus] | None) -> Devices:
    ours = [each for each in found or () if each.driver == labels.DRIVER]
    return sorted(
        ours, key=lambda each: f"{each.device}-{each.share_id}" if each.share_id else each.device
    )
