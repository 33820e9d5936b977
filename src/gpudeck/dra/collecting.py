# SPDX-License-Identifier: Apache-2.0
"""Give back claims that the kubelet will never give back, since it has lost its own state.

Such a claim would hold its devices for ever. One is given back only when all of this was so
in two looks at least `forgotten_seconds` apart: the API server has no claim of its UID, or
none that has these devices; no pod that the kubelet knows uses it; and no container that the
runtime has was made with it. The kubelet alone is not enough: what it lists (pod-resources,
1.34 to 1.37) leaves out pods that were deleted by force while their containers still end,
init containers, and after the loss of its state every claim of a pod that kept running. The
runtime alone is not either: a container may be between two restarts.

The API server is asked once more under Prepare's lock, where the checkpoint is read again.
Without an answer of any of the three nothing is done. `main` runs it beside the plugin's
other writers, so of two plugins of an update one collects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from gpudeck import logs
from gpudeck.api import labels, names, resource, resources
from gpudeck.cdi import rendering
from gpudeck.dra import fetching, ledger, preparing
from gpudeck.dra.allocations import Reference
from gpudeck.dra.checkpoint import Entry, State
from gpudeck.errors import GpudeckError, UnavailableError
from gpudeck.kube import client
from gpudeck.kubelet import using

log = logs.get(__name__)

ASK_SECONDS = 5.0
"""How long the API server may take while calls of the kubelet wait for the lock."""


class Node(msgspec.Struct, frozen=True):
    """Whom of the node the collector asks; both raise UnavailableError without an answer."""

    name: str
    used: Callable[[], Awaitable[using.Used]]
    """What the kubelet's pods use."""
    holding: Callable[[str], Awaitable[frozenset[str]]]
    """The CDI devices of a kind that containers have."""


class Collector:
    """Looks for forgotten claims of one node."""

    def __init__(
        self,
        api: client.Client,
        book: ledger.Ledger,
        preparer: preparing.Preparer,
        node: Node,
        *,
        forgotten_seconds: float,
    ) -> None:
        self._api = api
        self._ledger = book
        self._preparer = preparer
        self._node = node
        self._forgotten_seconds = forgotten_seconds
        self._suspects: dict[str, float] = {}
        """When a claim was first found forgotten, in seconds of the loop's clock."""

    async def run(self) -> None:
        """Look now and again, for ever."""
        while True:
            try:
                await self.look(asyncio.get_running_loop().time())
            except GpudeckError as error:
                log.info("Cannot look for forgotten claims", reason=error.reason, error=error)
            await asyncio.sleep(self._forgotten_seconds)

    async def look(self, now: float) -> list[str]:
        """Give back what has been forgotten for long enough; returns the UIDs. `now` in seconds.

        Raises UnavailableError or another GpudeckError when something does not answer;
        what was suspected is then suspected anew.
        """
        suspects, self._suspects = self._suspects, {}
        forgotten = await self._forgotten()
        ripe = [
            each
            for each in forgotten
            if now - suspects.get(each.uid, now) >= self._forgotten_seconds
        ]
        freed = await self._preparer.collect(ripe, self._is_free) if ripe else []
        self._suspects = {
            each.uid: suspects.get(each.uid, now) for each in forgotten if each.uid not in freed
        }
        for each in forgotten:
            if each.uid in freed:
                log.warning("Gave back a forgotten claim", claim=each, uid=each.uid)
        return freed

    async def _forgotten(self) -> list[Reference]:
        """What all three show to be forgotten; the next is asked about what is left.

        The kubelet comes first: of a node in order it leaves nothing to ask the API server.
        """
        entries = {
            Reference(uid, entry.namespace, entry.name): entry
            for uid, entry in self._ledger.glance().claims.items()
            if entry.state is not State.RELEASED
        }
        if not entries:
            return []
        used = await self._node.used()
        unused = [each for each in entries if not is_used(each, used)]
        free = [each for each in unused if await self._is_free(each.uid, entries[each])]
        if not free:
            return []
        held = await self._node.holding(rendering.KIND)
        return [each for each in free if not _has_any(each, held)]

    async def _is_free(self, uid: str, entry: Entry) -> bool:
        """Whether the API knows of no claim that has the entry's devices. Raises in time."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                found = await self._find(uid, entry)
        except TimeoutError as error:
            raise UnavailableError(
                f"the API server has not told of claim {entry} within {ASK_SECONDS:g} s",
                reason="ApiServerSlow",
            ) from error
        return found is None or not has_devices(found, entry, names.pool_name(self._node.name))

    async def _find(self, uid: str, entry: Entry) -> resource.ResourceClaim | None:
        """The claim of that UID, None if there is none."""
        if not entry.name:  # Known from a CDI spec alone, after the checkpoint was lost.
            listed = await self._api.list(resources.RESOURCE_CLAIM, resource.ResourceClaim)
            return next((each for each in listed.items if each.metadata.uid == uid), None)
        return await fetching.claim(self._api, uid, entry)


def has_devices(claim: resource.ResourceClaim, entry: Entry, pool: str) -> bool:
    """Whether a claim is allocated any of the devices that its entry has. Pure.

    A claim that came to another node, or to other cards of this one, no longer has them.
    """
    allocation = claim.status.allocation if claim.status else None
    results: Sequence[resource.AllocatedDevice] = ()
    if allocation is not None and allocation.devices is not None:
        results = allocation.devices.results or ()
    mine = {(device.name, device.share_id) for device in entry.devices}
    return any(
        each.driver == labels.DRIVER and each.pool == pool and (each.device, each.share_id) in mine
        for each in results
    )


def is_used(claim: Reference, used: using.Used) -> bool:
    """Whether the kubelet shows a pod that uses the claim. Pure.

    The kubelet names claims without their UIDs; devices of ours tell a later claim of the
    same name apart.
    """
    if any(_has_any(claim, devices) for devices in used.claims.values()):
        return True
    of_the_name = used.claims.get(str(claim))
    ours = f"{rendering.KIND}="
    return of_the_name is not None and not any(each.startswith(ours) for each in of_the_name)


def _has_any(claim: Reference, cdi_devices: Iterable[str]) -> bool:
    """Whether any of the devices is the claim's."""
    mine = rendering.device_id(claim.uid, "")
    return any(each.startswith(mine) for each in cdi_devices)
