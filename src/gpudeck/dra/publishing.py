# SPDX-License-Identifier: Apache-2.0
"""Keep this node's ResourceSlices as `offering` and `slices` say they should be.

Woken by the adapter's inventory, by GPUClasses that come, go or get Ready, by claims that
are prepared and given back, and by every change of our own slices: the kubelet
deletes them when it starts and when no plugin was connected for 30 s (1.37), and
anybody may edit them. Before the first inventory nothing is written, so a restart
leaves what is published alone. `rehearsing` asks before a write what the server would keep
of it; what it did keep is compared with what was sent.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

import msgspec

from gpudeck import logs
from gpudeck.api import attributes, conditions, core, labels, names, resource, resources
from gpudeck.api.meta import OwnerReference, version_of
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.devices.identities import PciAddress
from gpudeck.dra import adapters, events, metrics, offering, rehearsing, slices, tainting
from gpudeck.errors import NotFoundError, TerminalError, UnavailableError
from gpudeck.kube import client, queueing, watching
from gpudeck.kube.caching import Cache

log = logs.get(__name__)

POOL = "pool"
"""The one key of the queue: the pool is published as a whole."""
REJECTED_SECONDS = 30.0
"""After a rejection: what was wrong may be a policy or a right that somebody changes."""


RELEASED_SECONDS = 10.0
"""How long a partition that was given back still counts as ours: the inventory without it may
come after the answer of Unprepare."""


@dataclasses.dataclass(frozen=True)
class Policy:
    """What this node decides about its offer."""

    shares: Callable[[], offering.SharePolicy] = offering.SharePolicy
    """What a share is now; whoever changes it wakes the publisher."""
    effect: str = tainting.NO_SCHEDULE
    """Of the taint of an unhealthy card."""


class Publisher:
    """Publishes the adapter's cards as the pool of one node."""

    def __init__(
        self,
        api: client.Client,
        adapter: adapters.Adapter,
        node_events: events.NodeEvents,
        node_name: str,
        *,
        held: Callable[[], frozenset[str]] = frozenset,
        kept_off: Callable[[], frozenset[PciAddress] | None] = frozenset,
        policy: Policy | None = None,
        leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        """`leaving` says whether the node is to offer nothing any more (`withdrawing`)."""
        self.published: dict[str, resource.Device] | None = None
        """The devices that the API server holds, by name; None until something is known."""
        self.rejection = ""
        """Why the API server does not take our slices; empty while it does."""
        self.withheld: frozenset[str] = frozenset()
        """The cards, by whole device, of which it does not let us offer parts."""
        self.is_withdrawn = False
        """Whether the offer was taken away because the node leaves DRA mode."""
        self._api = api
        self._adapter = adapter
        self._events = node_events
        self._node_name = node_name
        self._queue = queueing.Queue("resourceslices", first_seconds=0.05, limit_seconds=10.0)
        self._existing: dict[str, resource.ResourceSlice] = {}
        self._sent: dict[str, resource.ResourceSlice] = {}
        """What each slice was to become by our last write, with the version it then got."""
        self._generation = 0
        self._rehearsal = rehearsing.Rehearsal(api, node_events)
        self._held = held
        self._kept_off = kept_off
        self._policy = policy or Policy()
        self._leaving = leaving
        self._parts: frozenset[str] = frozenset()
        self._released: dict[str, float] = {}
        """When a device was last seen held, in the loop's time."""
        self._listeners: list[Callable[[], None]] = []
        self.cache = Cache(
            api,
            resources.RESOURCE_SLICE,
            resource.ResourceSlice,
            field_selector=f"spec.driver={labels.DRIVER},spec.nodeName={node_name}",
        )
        self.classes = Cache(api, resources.GPU_CLASS, GPUClass)

    def subscribe(self, published: Callable[[], None]) -> None:
        """Call back after each pass that left the pool as wanted, or was rejected."""
        self._listeners.append(published)

    async def run(self) -> None:
        """Publish for ever; `cache.run` and `classes.run` must run beside it."""
        await self.cache.synced()
        await self.classes.synced()
        self.cache.subscribe(self._changed)
        self.classes.subscribe(self._class_changed)
        self._adapter.subscribe(self.wake)
        self.wake()
        await self._queue.work(self._publish)

    def wake(self) -> None:
        """Look again: something that the offer depends on has changed."""
        self._queue.add(POOL)

    def held_changed(self) -> None:
        """Claims were prepared or given back: look again if parts of cards are concerned."""
        parts = frozenset(name for name in self._held() if not _is_whole(name))
        if parts != self._parts:
            self._parts = parts
            self.wake()

    def _class_changed(self, change: watching.Change[GPUClass]) -> None:
        if _choice(change.old) != _choice(change.new):
            self.wake()

    def _changed(self, change: watching.Change[resource.ResourceSlice]) -> None:
        """Note what the watch saw, unless an answer to our own write was newer."""
        known = self._existing.get(change.key)
        if change.new is None:
            # The deletion of a slice that was made anew since says nothing about the new one.
            if known and change.old and known.metadata.uid == change.old.metadata.uid:
                del self._existing[change.key]
        elif known is None or version_of(change.new.metadata) >= version_of(known.metadata):
            self._existing[change.key] = change.new
        self.wake()

    async def _publish(self, key: str) -> float | None:
        self.is_withdrawn = self._leaving()
        if self.is_withdrawn:
            await self._withdraw()
            return None
        cards = self._adapter.cards
        if cards is None:
            return None
        before = {
            device.name: device
            for each in self._existing.values()
            for device in each.spec.devices or ()
        }
        ours = self.ours()
        wanted = offering.offer(cards.values(), self._rules(ours), before=before)
        try:
            while not self._is_published(wanted) and not await self._write(wanted):
                # Each time less is kept than was thought, so this ends.
                wanted = offering.offer(cards.values(), self._rules(ours), before=before)
        except TerminalError as error:
            log.error("The API server rejects our resource slices", error=error)
            self._events.slices_rejected(str(error))
            self._report({}, str(error))
            return REJECTED_SECONDS
        self.withheld = wanted.withheld
        self._report({device.name: device for device in wanted.devices}, "")
        # What was given back a moment ago is looked at again when it counts no more.
        return RELEASED_SECONDS if ours != self._held() else self._rehearsal.again_seconds()

    async def _withdraw(self) -> None:
        """Take all slices away; what is known of the devices stays, for claims that have them."""
        for obsolete in list(self._existing.values()):
            await self._delete(obsolete)
        self._report(self.published or {}, "")

    def ours(self) -> frozenset[str]:
        """The devices that claims of this node hold, or held until a moment ago."""
        now, held = asyncio.get_running_loop().time(), self._held()
        self._released = {
            name: since for name, since in self._released.items() if now - since < RELEASED_SECONDS
        } | dict.fromkeys(held, now)
        return frozenset(self._released)

    def _rules(self, ours: frozenset[str]) -> offering.Rules:
        kept = self._rehearsal.kept()
        return offering.Rules(
            vendor=self._adapter.vendor,
            classes=tuple(
                each.spec
                for _, each in sorted(self.classes.objects.items())
                if _choice(each) is not None
            ),
            ours=ours,
            shares=self._policy.shares(),
            kept_off=self._kept_off(),
            effect=self._policy.effect,
            taints_kept=kept.taints,
            counters_kept=kept.counters,
            shares_kept=kept.shares,
        )

    def _is_published(self, wanted: offering.Offer) -> bool:
        """Whether nothing is to be done, decided without asking the API server."""
        owners = [
            owner
            for each in self._existing.values()
            for owner in each.metadata.owner_references or ()
        ]
        if not owners:
            return False
        plan = slices.plan(self._settled(), wanted.devices, wanted.counters, owner=owners[0])
        return not plan.delete and not plan.apply

    async def _write(self, wanted: offering.Offer) -> bool:
        """Write; say whether it was done. It is not if the server would not keep all of it."""
        plan = slices.plan(
            self._settled(),
            wanted.devices,
            wanted.counters,
            owner=await self._owner(),
            last_generation=self._generation,
        )
        if not await self._rehearsal.succeeds(plan, self._existing):
            return False
        for obsolete in plan.delete:
            await self._delete(obsolete)
        for target in plan.apply:
            await self._apply(target)
        self._generation = plan.generation
        log.info(
            "Published resource slices",
            devices=len(wanted.devices),
            generation=plan.generation,
            applied=len(plan.apply),
            deleted=len(plan.delete),
        )
        return True

    def _settled(self) -> list[resource.ResourceSlice]:
        """The slices; one that is as our last write left it counts as what was written.

        What the server drops or adds by itself would otherwise be fought for ever.
        """
        return [
            sent if (sent := self._sent.get(name)) and _identity(sent) == _identity(each) else each
            for name, each in self._existing.items()
        ]

    async def _owner(self) -> OwnerReference:
        try:
            node = await self._api.get(resources.NODE, self._node_name, core.Node)
        except NotFoundError as error:
            raise UnavailableError(
                f"node {self._node_name} does not exist yet", reason="NodeNotFound"
            ) from error
        return OwnerReference(
            api_version="v1",
            kind="Node",
            name=self._node_name,
            uid=node.metadata.uid or "",
            controller=True,
        )

    async def _delete(self, obsolete: resource.ResourceSlice) -> None:
        name = obsolete.metadata.name
        try:
            await self._api.delete(
                resources.RESOURCE_SLICE,
                name,
                uid=obsolete.metadata.uid,
                resource_version=obsolete.metadata.resource_version,
            )
        except NotFoundError:
            log.debug("A resource slice was gone already", name=name)
        self._existing.pop(name, None)
        self._sent.pop(name, None)
        metrics.slice_writes.labels("delete").inc()

    async def _apply(self, target: resource.ResourceSlice) -> None:
        kept = await self._api.apply(
            resources.RESOURCE_SLICE,
            target,
            resource.ResourceSlice,
            manager=labels.MANAGER_DRA_PLUGIN,
        )
        metrics.slice_writes.labels("apply").inc()
        self._existing[target.metadata.name] = kept
        meta = msgspec.structs.replace(
            kept.metadata, owner_references=target.metadata.owner_references
        )
        self._sent[target.metadata.name] = msgspec.structs.replace(target, metadata=meta)
        dropped = slices.differences(target, kept)
        if dropped and self._rehearsal.lacks(dropped):
            # Another of several API servers answered the rehearsal.
            raise UnavailableError("the API server drops fields", reason="FieldsDropped")

    def _report(self, published: dict[str, resource.Device], rejection: str) -> None:
        self.published, self.rejection = published, rejection
        metrics.published_devices.set(len(published))
        for listener in self._listeners:
            listener()


def _is_whole(device: str) -> bool:
    named = names.parse_device(device)
    return named is None or named.type == attributes.TYPE_GPU


def _choice(gpu_class: GPUClass | None) -> object:
    """What a class says about the offer: its spec while it is Ready, else nothing."""
    if gpu_class is None or gpu_class.metadata.deletion_timestamp is not None:
        return None
    status = gpu_class.status
    ready = conditions.find(status.conditions if status else None, conditions.READY)
    return gpu_class.spec if ready is not None and ready.status == conditions.TRUE else None


def _identity(each: resource.ResourceSlice) -> tuple[str | None, str | None]:
    return each.metadata.uid, each.metadata.resource_version
