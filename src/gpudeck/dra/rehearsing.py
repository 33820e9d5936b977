# SPDX-License-Identifier: Apache-2.0
"""Ask the API server what it would keep of our ResourceSlices, before they are written.

Servers drop fields of features that they do not have, or have switched off, without a word
(counters, shares and taints before Kubernetes 1.36). A card and its parts without counters
are given out at the same time, and a scheduler of 1.34 takes devices even from a pool of
which slices are missing; so such slices must not be stored for a moment. A dry run
tells, by what comes back and not by a version. Called by `publishing`; writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping

import msgspec

from gpudeck import logs
from gpudeck.api import labels, resource, resources
from gpudeck.dra import events, slices
from gpudeck.errors import InvalidError
from gpudeck.kube import client

log = logs.get(__name__)

AGAIN_SECONDS = 600.0
"""After which a server that lacked something is asked anew: it may have been updated."""
TAINTS, SHARED, CONSUMED = "taints", "sharedCounters", "consumesCounters"
SEVERAL = "allowMultipleAllocations"


class Kept(msgspec.Struct, frozen=True):
    """What the server keeps."""

    taints: bool = True
    counters: bool = True
    shares: bool = True

    def without(self, fields: Iterable[str]) -> Kept:
        """What it keeps if it dropped these fields, given as paths."""
        lost = {field.rpartition(".")[2] for field in fields}
        return Kept(
            taints=self.taints and TAINTS not in lost,
            counters=self.counters and not lost & {SHARED, CONSUMED},
            shares=self.shares and SEVERAL not in lost,
        )


EVERYTHING = Kept()


def guards(each: resource.ResourceSlice) -> set[str]:
    """The fields in a slice that keep its devices from being given out wrongly."""
    found = {SHARED} if each.spec.shared_counters else set()
    for device in each.spec.devices or ():
        if device.taints:
            found.add(TAINTS)
        if device.consumes_counters:
            found.add(CONSUMED)
        if device.allow_multiple_allocations:
            found.add(SEVERAL)
    return found


def doubtful(
    plan: slices.Plan, existing: Mapping[str, resource.ResourceSlice]
) -> list[resource.ResourceSlice]:
    """The slices of a plan to be tried: each brings a guard that none before it had.

    What an object has already is kept in it (1.34 to 1.37), so small changes ask nothing.
    """
    gone = {each.metadata.name for each in plan.delete}
    tried: set[str] = set()
    found = []
    for target in plan.apply:
        name = target.metadata.name
        known = existing.get(name)
        new = guards(target) - (guards(known) if known is not None else set()) - tried
        # One that is to be made anew cannot be tried while the old one is there.
        if new and name not in gone:
            tried |= new
            found.append(target)
    return found


class Rehearsal:
    """What the plugin of one node knows of its API server."""

    def __init__(self, api: client.Client, node_events: events.NodeEvents) -> None:
        self._api = api
        self._events = node_events
        self._kept = EVERYTHING
        self._since = 0.0
        """When something was last found missing, in the loop's time."""
        self._told = EVERYTHING

    def kept(self) -> Kept:
        """What to count on."""
        if self.again_seconds() == 0:
            self._kept = EVERYTHING
        return self._kept

    def again_seconds(self) -> float | None:
        """In how many seconds to ask again; None while nothing is missing."""
        if self._kept == EVERYTHING:
            return None
        return max(self._since + AGAIN_SECONDS - asyncio.get_running_loop().time(), 0.0)

    async def succeeds(
        self, plan: slices.Plan, existing: Mapping[str, resource.ResourceSlice]
    ) -> bool:
        """Whether the server would keep all that is needed; if not, `kept` says what it lacks.

        Raises TerminalError if it takes not even whole cards, RetryableError if it is away.
        """
        for target in doubtful(plan, existing):
            try:
                kept = await self._api.rehearse(
                    resources.RESOURCE_SLICE,
                    target,
                    resource.ResourceSlice,
                    manager=labels.MANAGER_DRA_PLUGIN,
                )
            except InvalidError as error:
                # 1.34 wants counters in the slice of their devices, 1.35 and later outside it.
                parts = guards(target) - {TAINTS}
                if not parts:
                    raise
                if self._lack(parts):
                    log.warning("The API server rejects parts of cards", error=error)
                    self._events.parts_rejected(str(error))
                return False
            dropped = slices.differences(target, kept)
            if self._kept.without(dropped) != self._kept:
                self.lacks(dropped)
                return False
        return True

    def lacks(self, dropped: Collection[str]) -> bool:
        """Take note of fields, as paths, that were not kept; say whether one is a guard."""
        before = self._kept
        if self._lack(dropped) or self._kept == before:
            log.warning("The API server did not keep fields as sent", fields=list(dropped))
            self._events.fields_dropped(list(dropped))
        return self._kept != before

    def _lack(self, fields: Iterable[str]) -> bool:
        """Count on them no more; say whether that is news."""
        self._kept = self._kept.without(fields)
        self._since = asyncio.get_running_loop().time()
        told, self._told = self._told, self._kept
        return told != self._kept
