# SPDX-License-Identifier: Apache-2.0
"""`gpudeck mig-manager`: the process that partitions a node's cards as its label says.

One task takes one step after another (`stepping`); the others wake it: the Node, a
ConfigMap, or what the node shows of driver and partitions has changed. Nothing is kept
but on the Node, so the process may end at any instruction.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpudeck import errors, logs
from gpudeck.api import labels
from gpudeck.api.core import ConfigMap, Node, NodeSpec, OwnedNode
from gpudeck.api.meta import ObjectMeta
from gpudeck.api.resources import CONFIG_MAP, NODE
from gpudeck.host import certificates, platform, stopping, systemctl
from gpudeck.host.root import Root
from gpudeck.kube import recording, serving
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.watching import Change
from gpudeck.kubelet import listing
from gpudeck.mig import attending, clients, configs, nodes, progress
from gpudeck.repartitioning import (
    looking,
    metrics,
    reporting,
    sources,
    stepping,
)
from gpudeck.repartitioning.settings import Settings
from gpudeck.repartitioning.stepping import Act
from gpudeck.vendors import contract, records, registry

log = logs.get(__name__)

RETRY_SECONDS = 2.0
CONFLICT_SECONDS = 0.1
"""The kubelet and others write to the Node all the time."""
POD_SECONDS = 0.2
"""Between two looks at the kubelet's pods, while some are to go."""
_HANGING_SECONDS = 900.0
"""Longer than the library may take for the cards of a node, resets included."""


class Process:
    """The parts of the process and what connects them."""

    def __init__(self, settings: Settings, api: Client) -> None:
        self._settings = settings
        self._api = api
        self._namespace = settings.namespace or api.namespace
        self._root = Root(settings.host_root, on_node=settings.host_root_on_node)
        self._place = attending.Place(settings.vendor, str(settings.host_root), settings.log_level)
        self._kubelet = listing.Place(
            Path(settings.pod_resources), settings.plugins_dir, settings.pod_logs
        )
        self._stopping = stopping.Stopping(self._root, "mig-manager")
        places = contract.VendorSettings(
            host_root=str(settings.host_root), host_root_on_node=settings.host_root_on_node
        )
        self._vendor = registry.load(settings.vendor).vendor(places)
        self._node = Cache(
            api, NODE, Node, field_selector=f"metadata.name={settings.node_name}", keep=_trimmed
        )
        names = (
            settings.config_map,
            settings.group_config_map,
            settings.default_config_map,
            settings.gpu_clients_config_map,
        )
        self._maps = {name: self._map(name) for name in names if name}
        self._recorder = recording.Recorder(api, "mig-manager", instance=settings.node_name)
        self._reporter = reporting.Reporter(api, settings.node_name, self._recorder)
        self._limits = stepping.Limits(
            drain=settings.drain_seconds,
            pause=settings.pause_seconds,
            change=settings.change_seconds,
            reboot=settings.reboot_seconds,
            may_reboot=settings.reboot,
            needs_leave=settings.reboot_approval,
        )
        self._wake = asyncio.Event()
        self._look: looking.Look | None = None
        self._looked = 0.0
        self._traces: tuple[str, ...] = ()
        self._edits = 0
        """Changes of ConfigMaps that were noticed."""
        self._looked_at: tuple[tuple[str, ...], int] = ((), 0)
        """Traces and edits before the look: with others it is out of date."""
        self._failures: tuple[looking.Failure, ...] = ()
        self._failed = 0.0
        self._rebooting = False
        self._listed: tuple[listing.Pod, ...] | None = None
        """Pods of the node as of the last step; None where the kubelet did not tell."""
        self._awaits_pods = asyncio.Event()
        self._stepped = time.monotonic()

    def _map(self, name: str) -> Cache[ConfigMap]:
        return Cache(
            self._api,
            CONFIG_MAP,
            ConfigMap,
            namespace=self._namespace,
            field_selector=f"metadata.name={name}",
        )

    async def run(self) -> None:
        """Run every part until one of them fails."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._node.run(), name="node")
            for name, each in self._maps.items():
                group.create_task(each.run(), name=f"config map {name}")
            group.create_task(self._follow_traces(), name="traces")
            group.create_task(self._follow_pods(), name="pods")
            group.create_task(self._reporter.run(), name="condition")
            group.create_task(self._recorder.run(), name="events")
            group.create_task(self._steps(), name="steps")
            group.create_task(self._serve(), name="serving")

    async def _serve(self) -> None:
        await serving.serve(
            self._settings,
            self._api,
            hanging=self._hanging,
            text=metrics.text,
            certificate=certificates.self_signed,
        )

    def _hanging(self) -> str:
        waiting = self._wake.is_set() and time.monotonic() - self._stepped > _HANGING_SECONDS
        return "The cards have not answered for long." if waiting else ""

    async def _follow_traces(self) -> None:
        """Notice that a driver was loaded anew, or that others change partitions, for ever."""
        while True:
            await asyncio.sleep(self._settings.trace_seconds)
            found = await self._read_traces()
            if found != self._traces:
                self._traces = found
                self._wake.set()

    async def _follow_pods(self) -> None:
        """Notice that pods come or go, for ever, while that is waited for.

        The kubelet tells nobody by itself; it is on this machine, and the API server is not.
        """
        while True:
            await self._awaits_pods.wait()
            await asyncio.sleep(POD_SECONDS)
            if await self._list_pods() != self._listed:
                self._wake.set()

    async def _list_pods(self) -> tuple[listing.Pod, ...] | None:
        try:
            return await listing.pods(self._kubelet)
        except errors.UnavailableError as error:
            log.debug("The kubelet does not tell what pods there are", error=error)
            return None

    async def _read_traces(self) -> tuple[str, ...]:
        try:
            return tuple(await asyncio.to_thread(self._vendor.traces))
        except errors.GpudeckError as error:
            log.debug("The node does not show its driver", why=error.message)
            return ()

    async def _steps(self) -> None:
        """Take steps, for ever."""
        await self._node.synced()
        self._node.subscribe(self._changed)
        for each in self._maps.values():
            await each.synced()
            each.subscribe(self._reconfigured)
        self._traces = await self._read_traces()
        while True:
            self._wake.clear()
            try:
                pause = await self._step()
            except errors.ConflictError as error:
                log.debug("The Node has changed meanwhile", error=error)
                pause = CONFLICT_SECONDS
            except errors.RetryableError as error:
                log.info("The next step waits", error=error)
                pause = RETRY_SECONDS
            except errors.TerminalError as error:
                # Rights and the Node may come later.
                log.warning("The next step waits", error=error)
                pause = stepping.LATER_SECONDS
            self._stepped = time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    def _changed(self, _change: Change[Node]) -> None:
        self._wake.set()

    def _reconfigured(self, _change: Change[ConfigMap]) -> None:
        self._edits += 1
        self._wake.set()

    async def _step(self) -> float | None:
        """Take one step; return the seconds until the next, None until something happens."""
        node = await self._api.get(NODE, self._settings.node_name, OwnedNode)
        situation = await self._situation(nodes.seen(node))
        step = stepping.step(situation)
        if step.start:
            await self._start(step.start)
        await self._write(node, step.wish)
        if _phase(step.wish.record) is not _phase(situation.seen.record):
            self._failures, self._rebooting = (), False
        self._reporter.show(step.said, node)
        if step.awaits_pods:
            self._awaits_pods.set()
        else:
            self._awaits_pods.clear()
        match step.act:
            case Act.NOTHING:
                return step.pause
            case Act.LOOK:
                await self._look_again(situation.wanted)
            case Act.STOP:
                await self._stop(situation.clients or ())
            case Act.APPLY:
                await self._apply(situation.wanted)
            case Act.REBOOT:
                await self._reboot()
        return 0.0

    async def _situation(self, seen: nodes.Seen) -> stepping.Situation:
        if (self._traces, self._edits) != self._looked_at:
            self._look = None
        record = seen.record
        running = None
        is_under_way = record is not None and record.is_under_way
        self._listed = await self._list_pods() if is_under_way else None
        if _phase(record) is progress.Phase.CHANGING and self._look is not None:
            with contextlib.suppress(errors.UnavailableError):
                running = await systemctl.running(self._root, self._look.clients)
        return stepping.Situation(
            now=int(time.time()),
            boot=platform.boot_id(self._root) or "",
            seen=seen,
            wanted=seen.config or self._settings.default_config,
            look=self._look,
            age=time.monotonic() - self._looked,
            pods=self._listed,
            clients=running,
            stopped=self._stopping.stopped,
            failures=self._failures,
            failed_for=time.monotonic() - self._failed,
            rebooting=self._rebooting,
            namespace=self._namespace,
            limits=self._limits,
        )

    async def _write(self, node: OwnedNode, wish: nodes.Wish) -> None:
        """Let the Node say what is wished. Raises ConflictError where it has changed meanwhile."""
        patch = nodes.patch(node, wish)
        if patch is None:
            return
        log.info("Writing to the Node", state=wish.state or "none", phase=_phase(wish.record))
        name, manager = node.metadata.name, labels.MANAGER_MIG_MANAGER
        await self._api.merge_patch(NODE, name, patch, Node, manager=manager)

    async def _look_again(self, name: str) -> None:
        # What was changed since the last look at the traces is seen by this look at the cards.
        self._traces = await self._read_traces()
        before = (self._traces, self._edits)
        try:
            units = await self._clients()
        except (errors.InvalidError, errors.NotFoundError) as error:
            self._look = looking.Look(name=name, error=error, fingerprint=error.reason)
        else:
            pods = await self._list_pods() or ()  # Else planned without what they hold.
            find = await self._finder(name)
            found = await looking.look(self._place, name, find, pods)
            self._look = msgspec.structs.replace(found, clients=units)
        self._looked, self._looked_at = time.monotonic(), before

    async def _clients(self) -> tuple[str, ...]:
        """Services of the host that may have cards open, as the ConfigMap lists them."""
        name = self._settings.gpu_clients_config_map
        if not name:
            return ()
        where = f"ConfigMap {self._namespace}/{name}"
        text = await self._text(name, clients.KEY)
        if text is None:
            raise errors.NotFoundError(
                f"{where}: it is not there, or has no key {clients.KEY}; it is to hold the "
                "services of the host that have cards open",
                reason="GpuClientsMissing",
            )
        return clients.read(where, text)

    async def _stop(self, units: Sequence[str]) -> None:
        log.info("Stopping services of the host", units=" ".join(units))
        try:
            await self._stopping.stop(units)
        except errors.GpudeckError as error:
            self._failures = (looking.Failure(error.reason, error.message, is_passing=True),)
            self._failed = time.monotonic()

    async def _start(self, units: Sequence[str]) -> None:
        """Start what was stopped. The node is given back also where one does not start."""
        log.info("Starting services of the host", units=" ".join(units))
        try:
            await self._stopping.start()
        except errors.GpudeckError as error:
            self._reporter.warn("MigClientNotStarted", f"{error.message}. Start it by hand.")

    async def _apply(self, name: str) -> None:
        """Change the cards, and look at them anew before anything is made of it."""
        find = await self._finder(name)
        pods = await listing.pods(self._kubelet)
        with metrics.apply_seconds.time():
            self._failures = await looking.apply(self._place, find, pods)
        metrics.changes.labels("failed" if self._failures else "success").inc()
        self._look, self._failed = None, time.monotonic()

    async def _reboot(self) -> None:
        self._rebooting = True
        try:
            await systemctl.reboot(self._root)
        except errors.GpudeckError as error:
            self._failures = (looking.Failure(error.reason, error.message),)
            self._failed = time.monotonic()

    async def _finder(self, name: str) -> looking.Find:
        """Read the ConfigMaps now: whoever labels a node has written the config just before."""
        settings = self._settings
        named = await self._source(settings.config_map, is_needed=True)
        grouped = await self._source(settings.group_config_map)
        shipped = await self._source(settings.default_config_map)

        def find(cards: Sequence[records.CardState]) -> sources.Found:
            return sources.find(name, (*named, *grouped), shipped, cards)

        return find

    async def _source(self, name: str, *, is_needed: bool = False) -> tuple[sources.Source, ...]:
        if not name:
            return ()
        place = f"{self._namespace}/{name}"
        found = await self._data(name)
        written = found.get(configs.WRITTEN_KEY, "")
        return (sources.Source(place, found.get(configs.KEY), is_needed, written),)

    async def _text(self, name: str, key: str) -> str | None:
        """What a ConfigMap says under a key; None where there is none."""
        return (await self._data(name)).get(key)

    async def _data(self, name: str) -> dict[str, str]:
        """What a ConfigMap says, by key; nothing where there is none."""
        with contextlib.suppress(errors.NotFoundError):
            found = await self._api.get(CONFIG_MAP, name, ConfigMap, namespace=self._namespace)
            return found.data or {}
        return {}


def _phase(record: progress.Record | None) -> progress.Phase:
    return record.phase if record is not None else progress.Phase.DONE


def _trimmed(node: Node) -> Node:
    """What is used of a Node, so that the kubelet's reports of its state wake nobody."""
    meta = node.metadata
    taints = (node.spec.taints if node.spec else None) or []
    return Node(
        metadata=ObjectMeta(
            name=meta.name,
            uid=meta.uid,
            labels={
                name: value for name, value in (meta.labels or {}).items() if nodes.is_read(name)
            },
            annotations={
                name: value
                for name, value in (meta.annotations or {}).items()
                if nodes.is_read(name)
            },
        ),
        spec=NodeSpec(
            taints=[each for each in taints if nodes.is_read_taint(each)],
            unschedulable=node.spec.unschedulable if node.spec else None,
        ),
    )


async def run(settings: Settings) -> None:
    """Run until cancelled. Raises GpudeckError for settings that cannot work."""
    if not settings.node_name:
        raise errors.InvalidError(
            "--node-name: is missing; allowed: the name of this host's Node", field="--node-name"
        )
    async with await Client.connect(settings.kubeconfig) as api:
        await Process(settings, api).run()
