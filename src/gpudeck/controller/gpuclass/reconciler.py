# SPDX-License-Identifier: Apache-2.0
"""Keep the DeviceClass of each GPUClass, its status, and no DeviceClass without a GPUClass.

The DeviceClass is written by server-side apply and only if it is not as it must be.
One that somebody else made is never touched: the class says so and waits. Run by
one worker, since classes depend on each other by their extended resource names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gpudeck import errors, logs
from gpudeck.api import conditions, labels
from gpudeck.api.resource import DeviceClass
from gpudeck.api.resources import DEVICE_CLASS, GPU_CLASS
from gpudeck.api.v1alpha1.gpuclass import GPUClass, GPUClassStatus, asked_name, mapped_name
from gpudeck.controller import events, metrics
from gpudeck.controller.gpuclass import conflicts, deviceclass, statuses, tally, withholding
from gpudeck.kube import recording
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client

_log = logs.get(__name__)

AGAIN_SECONDS = 600.0
"""After which a server that dropped an extended resource name is given it again: it may have
been updated."""


class Reconciler:
    """Brings DeviceClasses in line with GPUClasses; called by one queue."""

    def __init__(
        self,
        client: Client,
        classes: Cache[GPUClass],
        device_classes: Cache[DeviceClass],
        cards: tally.Tally,
        report: events.Events,
        *,
        withheld: withholding.Withheld,
        registered: Callable[[str], bool | None],
    ) -> None:
        """`registered` says whether a webhook serves a name that no scheduler serves.

        None for a name that none ever will. Whoever gives it asks for the classes again when
        an answer changes.
        """
        self._client = client
        self._classes = classes
        self._device_classes = device_classes
        self._cards = cards
        self._withheld = withheld
        self._registered = registered
        self._report = report
        self._nameless: dict[str, float] = {}
        """The classes whose extended resource name was dropped, and when, in the loop's time."""

    async def reconcile(self, name: str) -> float | None:
        """Bring the class of that name, or its absence, about.

        Returns when to come again, in seconds; None if nothing is to be tried again.
        """
        gpu_class = self._classes.objects.get(name)
        if gpu_class is None:
            self._nameless.pop(name, None)
            await self._remove_orphan(name)
        elif gpu_class.metadata.deletion_timestamp is None:
            outcome = await self._keep(gpu_class)
            await self._write_status(gpu_class, outcome)
            return self._again_seconds(name)
        return None

    def _again_seconds(self, name: str) -> float | None:
        since = self._nameless.get(name)
        if since is None:
            return None
        return max(since + AGAIN_SECONDS - asyncio.get_running_loop().time(), 0.0)

    async def _keep(self, gpu_class: GPUClass) -> statuses.Outcome:
        name = gpu_class.metadata.name
        if self._again_seconds(name) == 0:
            del self._nameless[name]
        found = self._device_classes.objects.get(name) or await self._look(name)
        if found is not None and not deviceclass.is_ours(found):
            return statuses.Outcome(
                ready=False,
                reason=conditions.DEVICE_CLASS_CONFLICT,
                message=f"DeviceClass {name} was not made by gpudeck and is left as it is; "
                f"delete it or give the GPUClass another name",
            )
        conflict = conflicts.sentence(
            gpu_class, self._classes.objects.values(), self._device_classes.objects.values()
        )
        wanted_name = "" if conflict else mapped_name(gpu_class)
        try:
            target = deviceclass.wanted(gpu_class, wanted_name)
        except errors.InvalidError as error:
            return statuses.Outcome(ready=False, reason=error.reason, message=error.message)
        # What the server drops would otherwise be written again with every change of a card.
        expected = deviceclass.without_name(target) if name in self._nameless else target
        if found is None or deviceclass.has_drifted(found, expected):
            await self._apply(gpu_class, found, target)
        if conflict:
            reason = conditions.EXTENDED_RESOURCE_CONFLICT
            return statuses.Outcome(False, reason, conflict, device_class_name=name)
        return self._outcome(gpu_class)

    def _outcome(self, gpu_class: GPUClass) -> statuses.Outcome:
        """The class is ready once pods get it by its name, by the scheduler or by the webhook."""
        name, asked = gpu_class.metadata.name, asked_name(gpu_class)
        mapped = "" if name in self._nameless else mapped_name(gpu_class)
        registered = self._registered(asked)
        if registered is None:
            return statuses.ready(name, mapped)
        if asked == mapped or registered or statuses.is_ready(gpu_class, asked):
            return statuses.ready(name, asked)
        return statuses.Outcome(
            ready=False,
            reason=conditions.WEBHOOK_NOT_REGISTERED,
            message=f"pods that ask for {asked} would wait for ever: the webhook that gives them "
            "their claims is not registered yet",
            device_class_name=name,
        )

    async def _look(self, name: str) -> DeviceClass | None:
        """Look at the server itself: an apply would take over what the cache does not show yet."""
        try:
            return await self._client.get(DEVICE_CLASS, name, DeviceClass)
        except errors.NotFoundError:
            return None

    async def _apply(
        self, gpu_class: GPUClass, found: DeviceClass | None, target: DeviceClass
    ) -> None:
        name = gpu_class.metadata.name
        applied = await self._client.apply(
            DEVICE_CLASS, target, DeviceClass, manager=labels.MANAGER_CONTROLLER
        )
        self._nameless.pop(name, None)
        if deviceclass.has_lost_name(applied, target):
            self._nameless[name] = asyncio.get_running_loop().time()
            target = deviceclass.without_name(target)
        if deviceclass.spec_has_drifted(applied, target):
            applied = await self._client.merge_patch(
                DEVICE_CLASS,
                name,
                deviceclass.spec_patch(target),
                DeviceClass,
                manager=labels.MANAGER_CONTROLLER,
            )
        if found and found.metadata.resource_version == applied.metadata.resource_version:
            return
        metrics.writes.labels("DeviceClass").inc()
        _log.info("Wrote DeviceClass", name=name, created=found is None)
        self._report.device_class_written(gpu_class, created=found is None)

    async def _write_status(self, gpu_class: GPUClass, outcome: statuses.Outcome) -> None:
        counts = self._count(gpu_class)
        note = self._note(gpu_class) if outcome.ready else ""
        wanted = statuses.of(gpu_class, outcome, counts, recording.timestamp(), note=note)
        if wanted == gpu_class.status:
            return
        body = {"metadata": {"name": gpu_class.metadata.name}, "status": wanted}
        try:
            await self._client.apply(
                GPU_CLASS,
                body,
                GPUClass,
                manager=labels.MANAGER_CONTROLLER,
                subresource="status",
            )
        except errors.NotFoundError:
            return
        metrics.writes.labels("GPUClass").inc()
        if outcome.reason == conditions.WEBHOOK_NOT_REGISTERED:
            return  # Every such class passes through it, mostly for less than a second.
        if not outcome.ready and _reason(gpu_class.status) != outcome.reason:
            self._report.class_refused(gpu_class, outcome.reason, outcome.message)

    def _count(self, gpu_class: GPUClass) -> tally.Counts:
        try:
            return self._cards.of(gpu_class.spec)
        except errors.InvalidError:
            return tally.Counts()

    def _note(self, gpu_class: GPUClass) -> str:
        try:
            return self._withheld.sentence(gpu_class.spec)
        except errors.InvalidError:
            return ""

    async def _remove_orphan(self, name: str) -> None:
        found = self._device_classes.objects.get(name)
        if found is None or not deviceclass.is_ours(found):
            return
        try:
            # A class that was made a moment ago may not have come by the watch yet.
            await self._client.get(GPU_CLASS, name, GPUClass)
        except errors.NotFoundError:
            await self._delete(found)

    async def _delete(self, found: DeviceClass) -> None:
        name = found.metadata.name
        try:
            await self._client.delete(DEVICE_CLASS, name, uid=found.metadata.uid)
        except errors.NotFoundError:
            return
        _log.info("Deleted DeviceClass without GPUClass", name=name)


def _reason(status: GPUClassStatus | None) -> str:
    found = conditions.find(status.conditions if status else None, conditions.READY)
    return found.reason if found else ""
