# SPDX-License-Identifier: Apache-2.0
"""Which cards administrators have taken out of use by `gpudeck cordon`, and why.

Followed for `unoffered`: a DeviceTaintRule keeps claims off a card without a word of its DRA
plugin. Kubernetes before 1.36 has no such rules, and who may not read them is not told of
them; neither keeps the controller from leading. Never writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gpudeck import errors, logs
from gpudeck.api import labels, names
from gpudeck.api.meta import Meta, ObjectMeta
from gpudeck.api.resource import DeviceTaintRule
from gpudeck.api.resources import DEVICE_TAINT_RULES, Resource
from gpudeck.kube import pacing
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.watching import Change

LONGEST_SECONDS = 300.0
"""How often is asked in the end whether there are such rules now, where there were none."""
_NO_EFFECT = "None"
_log = logs.get(__name__)


class Cordons:
    """The cordoned cards of the cluster; `run` must run."""

    def __init__(self, client: Client, changed: Callable[[str], None]) -> None:
        """`changed` is told the card, as a label has it, when it is cordoned or no longer."""
        self._client = client
        self._changed = changed
        self._rules: dict[str, dict[str, str]] = {}
        """By card: the reason that each of its rules has."""
        self._known = asyncio.Event()

    def of_card(self, name: str) -> str:
        """Say that a PhysicalGPU is cordoned, as a sentence; empty where it is not."""
        return self._said(names.node_label(name))

    async def known(self) -> None:
        """Wait until all rules were read once, or it is known that they cannot be."""
        await self._known.wait()

    async def run(self) -> None:
        """Follow the rules, for ever."""
        pace = pacing.Backoff(limit_seconds=LONGEST_SECONDS)
        while (resource := await self._served()) is None:
            self._known.set()
            await asyncio.sleep(pace.next())
        cache = Cache(
            self._client, resource, DeviceTaintRule, label_selector=labels.CARD, keep=_trimmed
        )
        cache.subscribe(self._follow)
        async with asyncio.TaskGroup() as group:
            group.create_task(cache.run(), name="cordoned cards")
            await cache.synced()
            self._known.set()

    async def _served(self) -> Resource | None:
        for resource in DEVICE_TAINT_RULES:
            try:
                await self._client.list(resource, Meta, label_selector=labels.CARD)
            except errors.GpudeckError as error:
                _log.info("Cordoned cards are not known", version=resource.version, error=error)
            else:
                return resource
        return None

    def _follow(self, change: Change[DeviceTaintRule]) -> None:
        touched = {_card(each) for each in (change.old, change.new) if each is not None}
        before = {card: self._said(card) for card in touched}
        for card in touched:
            self._rules.get(card, {}).pop(change.key, None)
        if change.new is not None:
            reason = (change.new.metadata.annotations or {}).get(labels.REASON, "")
            self._rules.setdefault(_card(change.new), {})[change.key] = reason
        for card, said in before.items():
            if self._said(card) != said:
                self._changed(card)

    def _said(self, card: str) -> str:
        rules = self._rules.get(card)
        if not rules:
            return ""
        reason = next(filter(None, rules.values()), "")
        return f"It is cordoned: {reason.rstrip('.')}." if reason else "It is cordoned."


def _card(rule: DeviceTaintRule) -> str:
    return (rule.metadata.labels or {}).get(labels.CARD, "")


def _trimmed(found: DeviceTaintRule) -> DeviceTaintRule | None:
    if found.spec.taint.effect == _NO_EFFECT:
        return None
    meta = found.metadata
    reason = {labels.REASON: (meta.annotations or {}).get(labels.REASON, "")}
    kept = ObjectMeta(name=meta.name, labels={labels.CARD: _card(found)}, annotations=reason)
    return DeviceTaintRule(metadata=kept)
