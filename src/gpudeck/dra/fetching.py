# SPDX-License-Identifier: Apache-2.0
"""What the API server has allocated to the claims of a call, and whether that is news.

`preparing` asks before it takes the lock. For a claim that is not prepared the answer is
needed; a prepared one is answered without it, so for those the server is waited for only a
moment. Reads and compares; changes nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

from gpudeck.api import resource, resources
from gpudeck.dra import allocations, metadata
from gpudeck.dra.allocations import HeldDevice, Reference
from gpudeck.dra.checkpoint import Content, Entry, State
from gpudeck.errors import GpudeckError, NotFoundError, UnavailableError
from gpudeck.kube import client

COMPARE_SECONDS = 2.0
"""How long the API server may take to say whether a prepared claim was allocated anew."""


@dataclasses.dataclass
class Allocated:
    """What the API server says of a claim."""

    devices: list[HeldDevice]
    pod_claim_name: str | None


Fetched = Allocated | GpudeckError


async def claim(api: client.Client, uid: str, entry: Entry) -> resource.ResourceClaim | None:
    """The claim of an entry as it is now, None if it is gone or another one has its name."""
    try:
        found = await api.get(
            resources.RESOURCE_CLAIM,
            entry.name,
            resource.ResourceClaim,
            namespace=entry.namespace,
        )
    except NotFoundError:
        return None
    return found if found.metadata.uid == uid else None


class Reader:
    """Reads claims of one node; `checks_names` where names of claims become paths."""

    def __init__(self, api: client.Client, node_name: str, *, checks_names: bool) -> None:
        self._api = api
        self._node_name = node_name
        self._checks_names = checks_names

    async def fetch(self, claims: Sequence[Reference], known: Content) -> dict[str, Fetched]:
        """What each claim is allocated on this node, by its UID; errors are each claim's own."""

        async def fetch(claim: Reference) -> Fetched:
            if not _is_completed(known, claim):
                return await self._allocated(claim)
            try:
                async with asyncio.timeout(COMPARE_SECONDS):
                    return await self._allocated(claim)
            except TimeoutError:
                return UnavailableError(f"the API server has not told of claim {claim} in time")

        found = await asyncio.gather(*map(fetch, claims))
        return {claim.uid: each for claim, each in zip(claims, found, strict=True)}

    async def _allocated(self, claim: Reference) -> Fetched:
        try:
            found = await self._api.get(
                resources.RESOURCE_CLAIM,
                claim.name,
                resource.ResourceClaim,
                namespace=claim.namespace,
            )
            devices = allocations.devices(found, claim, self._node_name)
            if not self._checks_names:
                return Allocated(devices, None)
            metadata.check(claim, devices)
            return Allocated(devices, metadata.pod_claim_name(found))
        except GpudeckError as error:
            return error


def is_moved(entry: Entry, fetched: Fetched) -> bool:
    """Whether the API server has allocated the claim anew since its entry was made."""
    return isinstance(fetched, Allocated) and not allocations.same(entry.devices, fetched.devices)


def is_to_be_made(content: Content, uid: str, fetched: Fetched) -> bool:
    """Whether the adapter will be needed for a claim."""
    entry = content.claims.get(uid)
    if entry is None or entry.state is not State.COMPLETED:
        return not isinstance(fetched, GpudeckError)
    return is_moved(entry, fetched)


def _is_completed(content: Content, claim: Reference) -> bool:
    entry = content.claims.get(claim.uid)
    return entry is not None and entry.state is State.COMPLETED
