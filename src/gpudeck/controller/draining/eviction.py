# SPDX-License-Identifier: Apache-2.0
"""Evict pods of nodes, each at its own pace: one that a budget keeps is asked for less often.

Used by `reconciler` and by the change of modes. In memory alone: a replica that takes over
asks once more for each pod, which is harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from gpudeck import logs
from gpudeck.kube import evicting, pacing
from gpudeck.kube.client import Client

FIRST_SECONDS, LIMIT_SECONDS = 1.0, 30.0
"""Between two attempts at a pod that may not go yet."""
AT_A_TIME = 10
"""Pods of a node: a webhook may take its time to answer for each."""
_log = logs.get(__name__)


class _Kept(msgspec.Struct):
    """A pod that may not go yet."""

    why: str
    pace: pacing.Backoff
    not_before: float
    """In the loop's time."""


class Evictor:
    """Remembers which pods may not go yet, node by node."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: dict[str, dict[evicting.Pod, _Kept]] = {}

    async def evict(self, node: str, pods: Sequence[evicting.Pod]) -> dict[evicting.Pod, str]:
        """Have pods of a node evicted; returns those that may not go now, each with the reason.

        Called again and again with the pods that are left. That the API server fails is raised
        after all pods were asked for.
        """
        known = self._kept.get(node, {})
        self._kept[node] = {pod: known[pod] for pod in pods if pod in known}
        turns = asyncio.Semaphore(AT_A_TIME)

        async def one(pod: evicting.Pod) -> None:
            async with turns:
                await self._try(node, pod)

        answers = await asyncio.gather(*map(one, pods), return_exceptions=True)
        failure = next((each for each in answers if each is not None), None)
        blocked = {pod: kept.why for pod, kept in self._kept[node].items()}
        if not blocked:
            del self._kept[node]
        if failure is not None:
            raise failure
        return blocked

    def forget(self, node: str) -> None:
        """Nothing is to go from the node any more."""
        self._kept.pop(node, None)

    async def _try(self, node: str, pod: evicting.Pod) -> None:
        now = asyncio.get_running_loop().time()
        kept = self._kept[node].get(pod)
        if kept is not None and now < kept.not_before:
            return
        why = await evicting.evict(self._client, pod)
        if not why:
            self._kept[node].pop(pod, None)
            _log.info("Evicted a pod", node=node, pod=pod)
            return
        pace = kept.pace if kept is not None else pacing.Backoff(FIRST_SECONDS, LIMIT_SECONDS)
        self._kept[node][pod] = _Kept(why, pace, now + pace.next())
