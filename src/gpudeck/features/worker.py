# SPDX-License-Identifier: Apache-2.0
"""The worker: reads its host and keeps one NodeFeature, by server-side apply.

It looks when a PCI device or a kernel module comes or goes, when a file in features.d or custom.d
changes, and every minute, in a thread; the latest look is written as soon as the API server is
there. The NodeFeature is owned by the Node, not by this pod: it outlives a restart of the worker
and goes with the node. A source that cannot be read keeps what it gave before: a sick file drops
no label.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time

import msgspec

import gpudeck
from gpudeck import errors, logs
from gpudeck.api import labels, names
from gpudeck.api.meta import Meta, ObjectMeta, OwnerReference
from gpudeck.api.nodefeatures import NodeFeature, NodeFeatureSpec
from gpudeck.api.resources import NODE, NODE_FEATURE
from gpudeck.features import configuring, following, labelling, metrics, settings
from gpudeck.features.known import gathered
from gpudeck.features.settings import Settings
from gpudeck.features.sources import custom, local, reading
from gpudeck.host import certificates, pci, uevents
from gpudeck.host.root import Root
from gpudeck.kube import serving
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.queueing import Queue
from gpudeck.kube.watching import Change

_KEY = "nodefeature"
_STUCK_FACTOR = 4
_log = logs.get(__name__)


def describe(found: reading.Reading, given: Settings) -> NodeFeature:
    """Return what the NodeFeature should say. Pure."""
    rules = found.labels if "custom" in given.label_sources else {}
    own = {labelling.full_name(name): value for name, value in rules.items()}
    return NodeFeature(
        metadata=ObjectMeta(
            name=given.node_name,
            labels={labels.FEATURES_NODE: names.node_label(given.node_name)},
            annotations={labels.FEATURES_WORKER_VERSION: gpudeck.__version__},
        ),
        spec=NodeFeatureSpec(
            features=found.known.without(given.hidden_features).wire(),
            labels={**labelling.labels(found.known, settings.choices(given)), **own},
        ),
    )


def _sought(now: following.Configured) -> reading.Wanted:
    given = now.settings
    return reading.Wanted(given.sources, given.kernel_config, now.rules, given.node_name)


def show(given: Settings) -> None:
    """Print what the worker would write, and what it could not read."""
    file = following.File(given, configuring.worker)
    file.load()
    now = file.current
    found = reading.read(Root(given.host_root), _sought(now))
    body = msgspec.json.encode(describe(found, now.settings))
    sys.stdout.write(msgspec.json.format(body).decode() + "\n")
    for each in found.left_out:
        sys.stderr.write(f"left out: {each}\n")


_Stamps = dict[str, tuple[int, int, int] | None]


class Worker:
    """The parts of the role and what connects them."""

    def __init__(self, given: Settings, api: Client) -> None:
        self._file = following.File(given, configuring.worker)
        self._api = api
        self._root = Root(given.host_root, on_node=given.host_root_on_node)
        self._namespace = given.namespace or api.namespace
        field = f"metadata.name={given.node_name}"
        self._nodes = Cache(api, NODE, Meta, field_selector=field, keep=_identity)
        self._written = Cache(
            api, NODE_FEATURE, NodeFeature, namespace=self._namespace, field_selector=field
        )
        self._queue = Queue("nodefeature", limit_seconds=30.0)
        self._wanted = asyncio.Event()
        self._stamps: _Stamps = {}
        """Of folders and files, from before the last look has read them."""
        self._last: reading.Reading | None = None
        self._body: NodeFeature | None = None
        self._answer: tuple[NodeFeatureSpec, NodeFeatureSpec] | None = None
        self._told: frozenset[str] = frozenset()
        self._began: float | None = None

    @property
    def _settings(self) -> Settings:
        return self._file.current.settings

    async def run(self) -> None:
        """Run every part until one of them fails. InvalidError for a wrong configuration."""
        self._file.load()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._file.watch(self._wanted.set), name="config")
            group.create_task(self._nodes.run(), name="node")
            group.create_task(self._written.run(), name="nodefeature")
            group.create_task(self._write(), name="writing")
            group.create_task(self._look_again_and_again(), name="looking")
            group.create_task(self._watch_bus(), name="bus")
            group.create_task(self._watch_files(), name="features.d")
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
        limit = _STUCK_FACTOR * self._settings.scan_seconds
        if self._began is None or time.monotonic() - self._began < limit:
            return ""
        return f"a look at the host has taken more than {limit:g} s"

    async def _look_again_and_again(self) -> None:
        while True:
            self._wanted.clear()
            await self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.scan_seconds):
                    await self._wanted.wait()

    async def _look(self) -> None:
        found = await self._read(self._last)
        if found.failed and self._last is None:
            # A worker that starts beside a sick source takes none of its labels away.
            found = await self._read(await self._published())
        self._report(found)
        self._last = found
        body = describe(found, self._settings)
        if body != self._body:
            self._body = body
            self._queue.add(_KEY)

    async def _read(self, before: reading.Reading | None) -> reading.Reading:
        self._began = time.monotonic()
        try:
            wanted = _sought(self._file.current)
            # Before it reads: what changes meanwhile, and what it alone has seen, is read again.
            self._stamps = await asyncio.to_thread(_stamps, self._root.look())
            return await asyncio.to_thread(reading.read, self._root, wanted, before)
        finally:
            metrics.scan_seconds.observe(time.monotonic() - self._began)
            self._began = None

    async def _published(self) -> reading.Reading | None:
        """What the NodeFeature on the API server says, which an earlier worker wrote."""
        await self._written.synced()
        held = self._written.objects.get(f"{self._namespace}/{self._settings.node_name}")
        if held is None:
            return None
        return reading.Reading(gathered([held.spec.features]), labels=held.spec.labels or {})

    def _report(self, found: reading.Reading) -> None:
        metrics.left_out.set(len(found.left_out))
        for name in self._settings.sources:
            metrics.source_success.labels(name).set(name not in found.failed)
        for each in found.left_out:
            if each not in self._told:
                _log.warning("A part of the host is left out", what=each)
        self._told = frozenset(found.left_out)

    async def _watch_bus(self) -> None:
        """Tell of devices and modules that come and go; drivers of devices are no feature."""
        if not self._root.is_directory(pci.DEVICES):
            return  # The look every minute finds a bus that comes later.
        await uevents.watch(
            self._root,
            self._wanted.set,
            bound=lambda: (),
            poll_seconds=self._settings.poll_seconds,
            modules=True,
        )

    async def _watch_files(self) -> None:
        """Compare names and times with those that were read, each second; no event tells of it."""
        while True:
            await asyncio.sleep(self._settings.poll_seconds)
            if await asyncio.to_thread(_stamps, self._root.look()) != self._stamps:
                self._wanted.set()

    async def _write(self) -> None:
        await self._nodes.synced()
        await self._written.synced()
        self._nodes.subscribe(self._node_changed)
        self._written.subscribe(self._written_changed)
        await self._queue.work(self._reconcile)

    def _node_changed(self, _change: Change[Meta]) -> None:
        self._queue.add(_KEY)

    def _written_changed(self, _change: Change[NodeFeature]) -> None:
        self._queue.add(_KEY)

    async def _reconcile(self, _key: str) -> None:
        node = self._nodes.objects.get(self._settings.node_name)
        if self._body is None or node is None or self._settings.no_publish:
            return  # The next look, or the Node, calls again.
        body = msgspec.structs.replace(
            self._body,
            metadata=msgspec.structs.replace(
                self._body.metadata,
                namespace=self._namespace,
                owner_references=[_owner(node)],
            ),
        )
        held = self._written.objects.get(f"{self._namespace}/{self._settings.node_name}")
        if held is not None and self._is_right(held, body):
            return
        try:
            answer = await self._api.apply(
                NODE_FEATURE, body, NodeFeature, manager=labels.MANAGER_FEATURES_WORKER
            )
        except errors.NotFoundError as error:
            # The kind itself may come later, and no other event would call again.
            raise errors.UnavailableError(error.message, reason=error.reason) from error
        self._answer = (body.spec, answer.spec)
        metrics.writes.labels("nodefeature").inc()
        _log.info("Wrote the features of the node", labels=len(body.spec.labels or ()))

    def _is_right(self, held: NodeFeature, wanted: NodeFeature) -> bool:
        """Whether what was asked for is there, also if the API server spells it otherwise."""
        is_asked = held.spec == wanted.spec or (wanted.spec, held.spec) == self._answer
        mine, theirs = wanted.metadata, held.metadata
        return (
            is_asked
            and (mine.labels or {}).items() <= (theirs.labels or {}).items()
            and (mine.annotations or {}).items() <= (theirs.annotations or {}).items()
            and (theirs.owner_references or []) == mine.owner_references
        )


def _identity(node: Meta) -> Meta:
    return Meta(metadata=ObjectMeta(name=node.metadata.name, uid=node.metadata.uid))


def _owner(node: Meta) -> OwnerReference:
    return OwnerReference(
        api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid or ""
    )


def _stamps(root: Root) -> _Stamps:
    found: _Stamps = {}
    for folder in (local.FOLDER, custom.FOLDER):
        with contextlib.suppress(errors.GpudeckError):
            found[folder] = root.stamp(folder)  # A file may come and go between two looks.
            names = root.list(folder)[: local.MOST_FILES]
            found.update({f"{folder}/{name}": root.stamp(f"{folder}/{name}") for name in names})
    return found
