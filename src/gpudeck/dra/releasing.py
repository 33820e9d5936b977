# SPDX-License-Identifier: Apache-2.0
"""Give claims back: have undone what the adapter made for them, then forget them.

Called by `preparing` with the content of the checkpoint, and under its lock where that is
changed. Needs neither API server nor adapter: what was made (a partition, the use of an MPS
daemon) and cannot be undone now stays in the checkpoint as Released.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gpudeck import logs
from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.cdi.files import Folder
from gpudeck.dra import adapters, edits, exposing, holders, ledger, requesting
from gpudeck.dra.allocations import HeldDevice, Reference
from gpudeck.dra.checkpoint import Content, State
from gpudeck.errors import GpudeckError, UnavailableError

log = logs.get(__name__)


class Releasing:
    """What gives back, for one node."""

    def __init__(
        self,
        adapter: adapters.Adapter,
        book: ledger.Ledger,
        folder: Folder,
        exposure: exposing.Exposure,
    ) -> None:
        self._adapter = adapter
        self._ledger = book
        self._folder = folder
        self._exposure = exposure

    async def give_back(
        self, known: Content, claims: Sequence[Reference]
    ) -> dict[str, GpudeckError]:
        """Tell the adapter, if it is there; return the claims that it refuses to give back."""
        entries = [
            (claim, entry)
            for claim in claims
            if (entry := known.claims.get(claim.uid)) is not None and not entry.holds_made
        ]
        if not entries or not self._adapter.is_connected:
            return {}
        request = adapter_pb2.UnprepareRequest(
            claims=[self._removal(claim, entry.devices) for claim, entry in entries]
        )
        try:
            answer = await self._adapter.unprepare(request)
        except UnavailableError as error:
            log.warning("Unpreparing without the adapter", error=error)
            return {}
        return {
            each.uid: edits.refused(each.error) for each in answer.claims if each.HasField("error")
        }

    async def drop(self, content: Content, claims: Sequence[Reference]) -> None:
        """Forget claims, after what was made for them was undone; what cannot be now stays."""
        # What others may hold next is removed under the lock.
        parts = [
            each
            for each in claims
            if (entry := content.claims.get(each.uid)) is not None and entry.holds_made
        ]
        late = await self._remove(content, parts)
        await ledger.whole(self._forget, content, [each.uid for each in claims], late)

    async def release(self, content: Content) -> None:
        """Have removed what claims that were given back have left, if the adapter is there."""
        waiting = released(content)
        if not waiting or not self._adapter.is_connected:
            return
        late = await self._remove(content, waiting)
        gone = [claim.uid for claim in waiting if claim.uid not in late]
        await ledger.whole(self._forget, content, gone, ())

    async def _remove(self, content: Content, claims: Sequence[Reference]) -> set[str]:
        """Have what was made for claims undone; the UIDs of those of which it is still to be."""
        if not claims:
            return set()
        if not self._adapter.is_connected:
            return {claim.uid for claim in claims}
        asked, late = [], set[str]()
        for claim in claims:
            try:
                asked.append(self._removal(claim, holders.alone(content, claim.uid)))
            except UnavailableError as error:
                log.warning("What was made cannot be undone yet", uid=claim.uid, why=error)
                late.add(claim.uid)
        try:
            answer = await self._adapter.unprepare(adapter_pb2.UnprepareRequest(claims=asked))
        except UnavailableError as error:
            log.warning("Cannot undo what was made now", error=error)
            return {claim.uid for claim in claims}
        for each in answer.claims:
            if each.HasField("error"):
                why = each.error.message
                log.warning("What was made cannot be undone yet", uid=each.uid, why=why)
                late.add(each.uid)
        return late

    def _removal(self, claim: Reference, devices: Sequence[HeldDevice]) -> adapter_pb2.ClaimRequest:
        """Like `_claim_request`, for Unprepare. Raises UnavailableError for an unread card."""
        asked = (requesting.removal(each, self._adapter.card_of(each)) for each in devices)
        return adapter_pb2.ClaimRequest(
            claim=adapter_pb2.ClaimReference(
                uid=claim.uid, namespace=claim.namespace, name=claim.name
            ),
            devices=[each for each in asked if each is not None],
        )

    def _forget(self, content: Content, claim_uids: Sequence[str], late: Collection[str]) -> None:
        """Remove the specs, then the entries, of which those in `late` stay. In a thread."""
        for uid in claim_uids:
            # Files go first: an entry without them is made whole by a repeated Prepare.
            self._folder.remove(uid)
            self._exposure.remove(uid)
        for uid in late:
            content.claims[uid] = content.claims[uid].released()
        forgotten = [uid for uid in claim_uids if uid not in late and content.forget(uid)]
        if forgotten or late:
            self._ledger.write(content)
            log.info("Unprepared claims", uids=",".join(claim_uids), to_remove=len(late))


def released(content: Content) -> list[Reference]:
    """The claims that were given back and have left something that is still to be removed."""
    return [
        Reference(uid, entry.namespace, entry.name)
        for uid, entry in content.claims.items()
        if entry.state is State.RELEASED
    ]
