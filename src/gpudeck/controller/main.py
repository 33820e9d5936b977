# SPDX-License-Identifier: Apache-2.0
"""The process controller: builds the parts, runs them in one group, leads when it may.

Every replica fills its caches, serves /metrics and the webhooks; only the leader
reconciles, so a replica that takes over starts with full caches. One that loses the lease stops
reconciling before another may lead, keeps its caches and queues, and stands again:
after an outage of the API server no restart of the container is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

from gpudeck import errors, logs
from gpudeck.api import conditions, labels, names
from gpudeck.api.core import Node, Pod
from gpudeck.api.resource import DeviceClass, ResourceClaim
from gpudeck.api.resources import (
    DEVICE_CLASS,
    GPU_CLASS,
    NODE,
    PHYSICAL_GPU,
    POD,
    RESOURCE_CLAIM,
)
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.controller import attendance, disruption, events, keeping, metrics, returning
from gpudeck.controller.admission import webhooks
from gpudeck.controller.draining import reconciler as drain_reconciler
from gpudeck.controller.gpuclass import reconciler as class_reconciler
from gpudeck.controller.gpuclass import shipped, shipping, tally, withholding
from gpudeck.controller.modes import cordons, looking, unoffered, writing
from gpudeck.controller.modes import reconciler as mode_reconciler
from gpudeck.controller.nodegroups.reconciler import NodeGroups
from gpudeck.controller.physicalgpu import holdings, occupancy
from gpudeck.controller.physicalgpu import reconciler as gpu_reconciler
from gpudeck.controller.settings import Settings
from gpudeck.host import certificates
from gpudeck.kube import serving
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.electing import Elector
from gpudeck.kube.queueing import Queue
from gpudeck.kube.recording import Recorder, timestamp
from gpudeck.kube.watching import Change

_ALL, _SHIPPED = "", "/"
"""The keys that stand for every class and for the classes that gpudeck makes."""
_log = logs.get(__name__)


async def run(settings: Settings) -> None:
    """Run until cancelled. Raises InvalidError for settings that cannot work."""
    _check("--partition-classes", settings.partition_classes, shipped.CHOICES)
    _check("--default-mode", settings.default_mode, labels.MODES)
    async with await Client.connect(settings.kubeconfig) as client:
        try:
            await Controller(client, settings).run()
        except BaseExceptionGroup as group:
            raise errors.first(group) from group


def _check(flag: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        allowed = " or ".join(choices)
        raise errors.not_valid(flag, value, allowed)


class Controller:
    """The parts of the process and what connects them: changes become keys in queues."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._settings = settings
        self._client = client
        identity = settings.identity or socket.gethostname()
        self._recorder = Recorder(client, labels.CONTROLLER, instance=identity)
        report = events.Events(self._recorder)
        self._gpus = Cache(client, PHYSICAL_GPU, PhysicalGPU, keep=keeping.gpu)
        self._claims = Cache(client, RESOURCE_CLAIM, ResourceClaim, keep=keeping.claim)
        self._classes = Cache(client, GPU_CLASS, GPUClass)
        self._device_classes = Cache(client, DEVICE_CLASS, DeviceClass)
        self._pods = Cache(
            client,
            POD,
            Pod,
            namespace=settings.namespace or client.namespace,
            label_selector=f"{labels.COMPONENT} in ({','.join(labels.ADAPTERS)})",
            keep=keeping.adapter_pod,
        )
        self._attendance = attendance.Attendance(
            settings.unattended_seconds, self._attendance_changed
        )
        self._held = holdings.Holdings()
        self._cards = tally.Tally()
        self._withheld = withholding.Withheld()
        self._gpu_queue = Queue("physicalgpu")
        self._class_queue = Queue("gpuclass")
        self._gpu_reconciler = gpu_reconciler.Reconciler(
            client,
            self._gpus,
            self._held,
            attended=self._attendance.covers,
            report=report,
            lost_seconds=settings.lost_seconds,
        )
        self._add_classes(report)
        self._disruption = disruption.Disruption(
            client, self._recorder, self._claims, self._held, gpus=self._gpus
        )
        self._pods_queue = Queue("disruption")
        self._follow_nodes()
        self._node_groups = NodeGroups(client, settings, report, self._nodes)
        self._elector = Elector(
            client,
            name=labels.CONTROLLER,
            namespace=settings.namespace or client.namespace,
            identity=identity,
        )
        self._subscribe()

    def _follow_nodes(self) -> None:
        """Make what follows the Nodes."""
        client, settings = self._client, self._settings
        self._nodes = Cache(client, NODE, Node, keep=keeping.node)
        self._cordons = cordons.Cordons(client, self._cordon_changed)
        self._draining = drain_reconciler.Draining(client, self._recorder, self._nodes)
        namespace = settings.namespace or client.namespace
        self._returning = returning.Returning(client, self._recorder, self._nodes, namespace)
        self._modes = mode_reconciler.Modes(
            client,
            self._nodes,
            looking.Looker(
                client,
                namespace,
                self._claims_on,
                nothing=self._nothing_offered,
            ),
            writing.Writer(client, self._recorder),
            policy=mode_reconciler.Policy(
                settings.default_mode, settings.mode_changes, settings.mode_seconds
            ),
        )

    def _add_classes(self, report: events.Events) -> None:
        """Make what works on classes, and what judges requests for them."""
        client, settings = self._client, self._settings
        self._webhooks = webhooks.Webhooks(
            client, settings, self._classes, self._device_classes, report
        )
        self._class_reconciler = class_reconciler.Reconciler(
            client,
            self._classes,
            self._device_classes,
            self._cards,
            report,
            withheld=self._withheld,
            registered=self._webhooks.registered,
        )
        self._shipping = shipping.Shipping(
            client, self._classes, self._cards, self._held, choice=settings.partition_classes
        )

    async def run(self) -> None:
        """Run every part until one of them fails."""
        async with asyncio.TaskGroup() as group:
            for cache in self._caches():
                group.create_task(cache.run())
            group.create_task(self._cordons.run(), name="cordons")
            group.create_task(self._node_groups.run(), name="nodegroups")
            group.create_task(self._recorder.run(), name="events")
            group.create_task(self._serve(), name="serving")
            group.create_task(self._admission(), name="admission")
            group.create_task(self._stand(), name="leading")

    def _caches(self) -> tuple[Cache[Any], ...]:
        own = (self._pods, self._gpus, self._claims, self._classes, self._device_classes)
        return (*own, self._nodes)

    async def _serve(self) -> None:
        async def text() -> bytes:
            return self.metrics()

        await serving.serve(
            self._settings, self._client, text=text, certificate=certificates.self_signed
        )

    async def _admission(self) -> None:
        for cache in (self._classes, self._device_classes, self._gpus, self._nodes):
            await cache.synced()
        await self._webhooks.run()

    async def _stand(self) -> None:
        """Lead whenever the lease can be had, for ever."""
        while True:
            # The elector has told why, and `_lead` has ended by the time that it raises.
            with contextlib.suppress(errors.LeadershipLostError):
                await self._elector.run(self._lead)

    async def _lead(self) -> None:
        for cache in self._caches():
            await cache.synced()
        await self._cordons.known()
        _log.info("Reconciling", cards=len(self._gpus.objects), classes=len(self._classes.objects))
        self._class_queue.add(_SHIPPED)
        async with asyncio.TaskGroup() as group:
            work = self._gpu_queue.work(
                self._gpu_reconciler.reconcile, workers=self._settings.workers
            )
            group.create_task(work, name="physicalgpu")
            group.create_task(self._class_queue.work(self._reconcile_class), name="gpuclass")
            told = self._pods_queue.work(self._disruption.reconcile)
            group.create_task(told, name="disruption")
            group.create_task(self._webhooks.lead(), name="webhooks")
            group.create_task(self._modes.lead(), name="modes")
            group.create_task(self._node_groups.lead(), name="nodegroups")
            group.create_task(self._draining.lead(), name="draining")
            if not self._settings.mig_manager:
                group.create_task(self._returning.lead(), name="returning")

    async def _reconcile_class(self, name: str) -> float | None:
        if name == _ALL:
            self._add_all_classes()
            return None
        if name == _SHIPPED:
            await self._shipping.reconcile()
            return None
        return await self._class_reconciler.reconcile(name)

    def _subscribe(self) -> None:
        self._pods.subscribe(self._attendance.pod_changed)
        self._gpus.subscribe(self._attendance.card_changed)
        self._gpus.subscribe(self._gpu_changed)
        self._gpus.subscribe(self._modes.card_changed)
        self._claims.subscribe(self._claim_changed)
        self._classes.subscribe(self._class_changed)
        self._device_classes.subscribe(self._device_class_changed)
        self._webhooks.subscribe(self._add_all_classes)
        self._nodes.subscribe(self._webhooks.node_changed)

    def _gpu_changed(self, change: Change[PhysicalGPU]) -> None:
        self._gpu_queue.add(change.key)
        self._webhooks.gpu_changed(change)
        is_news = self._disruption.follow(change.key, change.new)
        if is_news or (self._disruption.has_news(change.key) and _holders(change)):
            self._pods_queue.add(change.key)
        self._recount(change.old, change.new)
        if self._withheld.change(change.old, change.new):
            self._class_queue.add(_ALL, self._settings.count_seconds)

    def _recount(
        self,
        old: PhysicalGPU | None,
        new: PhysicalGPU | None,
        *,
        was_attended: bool | None = None,
    ) -> None:
        """Count a card again; `was_attended` says so if it was counted otherwise till now."""
        known = new or old
        attended = known is not None and self._attendance.covers(known)
        before = attended if was_attended is None else was_attended
        if self._cards.change(old, new, was_attended=before, is_attended=attended):
            self._class_queue.add(_ALL, self._settings.count_seconds)
            self._class_queue.add(_SHIPPED, self._settings.count_seconds)

    def _attendance_changed(self, node: str, attended: bool) -> None:
        if not attended:
            _log.info("Node has no adapter any more", node=node)
        for name in self._attendance.cards(node):
            gpu = self._gpus.objects[name]
            self._modes.look_at(gpu)
            self._recount(gpu, gpu, was_attended=not attended)
            self._gpu_queue.add(name)

    def _claims_on(self, node: str) -> set[str]:
        """The claims that hold devices of a node's cards."""
        return {
            f"{holder.namespace}/{holder.name}"
            for card in self._attendance.cards(names.node_label(node))
            for holder in self._held.of(card)
        }

    def _nothing_offered(self, node: str) -> str:
        """Why none of a node's cards is offered; empty where one is."""
        held = self._attendance.cards(names.node_label(node))
        known = self._nodes.objects.get(node)
        mode = (known.metadata.labels or {}).get(labels.ACTIVE_MODE) if known is not None else None
        # A cordon is of DRA alone: no device plugin follows it.
        cordoned = self._cordons.of_card if mode == labels.MODE_DRA else lambda _: ""
        found = [self._gpus.objects[card] for card in held]
        said = unoffered.why(found, cordoned)
        if said or not found or self._attendance.covers(found[0]):
            return said
        return unoffered.unattended(found, timestamp(-self._settings.unattended_seconds))

    def _cordon_changed(self, label: str) -> None:
        for name, card in self._gpus.objects.items():
            if names.node_label(name) == label:
                self._modes.look_at(card)

    def _claim_changed(self, change: Change[ResourceClaim]) -> None:
        profiles = self._held.profiles
        touched = self._held.change(change.old, change.new)
        if self._held.profiles != profiles:
            self._class_queue.add(_SHIPPED, self._settings.count_seconds)
        for gpu in touched:
            self._gpu_queue.add(gpu)
            if self._disruption.has_news(gpu):
                self._pods_queue.add(gpu)

    def _class_changed(self, change: Change[GPUClass]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or old.spec != new.spec:
            # A name that one class gives up may be another's from now on.
            self._add_all_classes()
            self._webhooks.classes_changed()
            self._class_queue.add(_SHIPPED)
        self._class_queue.add(change.key)

    def _device_class_changed(self, change: Change[DeviceClass]) -> None:
        names = {
            each.spec.extended_resource_name
            for each in (change.old, change.new)
            if each and each.spec
        }
        if len(names) > 1 or change.old is None or change.new is None:
            self._add_all_classes()
        self._webhooks.classes_changed()
        self._class_queue.add(change.key)

    def _add_all_classes(self) -> None:
        for name in self._classes.objects:
            self._class_queue.add(name)

    def metrics(self) -> bytes:
        """Return the text of /metrics with the gauges brought up to date."""
        metrics.leading.set(self._elector.is_leader)
        metrics.waiting.labels("physicalgpu").set(len(self._gpu_queue))
        metrics.waiting.labels("gpuclass").set(len(self._class_queue))
        metrics.waiting.labels("disruption").set(len(self._pods_queue))
        metrics.waiting.labels("modes").set(len(self._modes.queue))
        metrics.waiting.labels("nodegroups").set(len(self._node_groups.queue))
        metrics.waiting.labels("draining").set(len(self._draining.queue))
        if not self._settings.mig_manager:
            metrics.waiting.labels("returning").set(len(self._returning.queue))
        for phase, count in self._cards.phases.items():
            if phase:
                metrics.cards.labels(phase).set(count)
        ready = sum(map(_is_ready, self._classes.objects.values()))
        metrics.gpu_classes.labels("true").set(ready)
        metrics.gpu_classes.labels("false").set(len(self._classes.objects) - ready)
        return metrics.render()


def _holders(change: Change[PhysicalGPU]) -> bool:
    """Whether a change of a card is one of who has it from the device plugin."""
    old, new = (occupancy.by_plugin(each) if each else [] for each in (change.old, change.new))
    return bool(new) and old != new


def _is_ready(found: GPUClass) -> bool:
    ready = conditions.find(found.status.conditions if found.status else None, conditions.READY)
    return ready is not None and ready.status == conditions.TRUE
