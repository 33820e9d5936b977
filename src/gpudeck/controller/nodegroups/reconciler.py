# SPDX-License-Identifier: Apache-2.0
"""Keeps the DaemonSets and configs of every group, and the labels of every node's group.

Every replica follows; the leader alone writes. All writes are server-side apply of whole
objects, or of all labels of a group at once, so what is killed in between goes on from what
stands in the API. The field manager is one of its own: what a node no longer gets goes
with the apply, and what somebody else set stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gpudeck import errors, logs
from gpudeck.api import labels
from gpudeck.api.core import ConfigMap, Node
from gpudeck.api.meta import Meta, ObjectMeta, OwnerReference
from gpudeck.api.resources import CONFIG_MAP, DAEMON_SET, NODE, NODE_GROUP, ROLE, Resource
from gpudeck.controller import events, metrics
from gpudeck.controller.nodegroups import features, groups, reading, served, telling, workloads
from gpudeck.controller.settings import Settings
from gpudeck.kube import recording
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.queueing import Queue
from gpudeck.kube.watching import Change
from gpudeck.mig import configs

_WORKLOADS, _FEATURES = "", "/"
"""The keys of all objects of groups, and of labels that nobody speaks for, of all nodes or, with
its name, of one; others are nodes."""
LEFT_SECONDS = 15.0
"""How long after a node left all groups its gpu-feature-discovery may still write."""
_log = logs.get(__name__)


class NodeGroups:
    """The part of the controller that serves groups of nodes; `run` must run."""

    def __init__(
        self, client: Client, settings: Settings, report: events.Events, nodes: Cache[Node]
    ) -> None:
        """`nodes` keeps what `keeping.node` does, and runs elsewhere."""
        self._client = client
        self._nodes = nodes
        self._report = report
        namespace = settings.namespace or client.namespace
        self._namespace = namespace
        self._is_wanted = bool(settings.node_workloads)
        self._default_mig_config = settings.default_mig_config
        self._features = features.Features(client, namespace)
        self._teller = telling.Teller(client, report)
        self._templates = Cache(
            client,
            CONFIG_MAP,
            ConfigMap,
            namespace=namespace,
            field_selector=f"metadata.name={settings.node_workloads}",
            keep=_template,
        )
        self._made = {
            resource: Cache(
                client,
                resource,
                Meta,
                namespace=namespace,
                label_selector=labels.NODE_GROUP,
                keep=keep,
            )
            for resource, keep in _MADE
        }
        self._served = served.NodeGroups(client, self._groups_changed)
        self._world = groups.World()
        self._read_epoch = 0
        self._problems: Mapping[str, errors.InvalidError] = {}
        self._told: Mapping[str, errors.InvalidError] = {}
        self.queue = Queue("nodegroups")
        self._nodes.subscribe(self._node_changed)
        self._templates.subscribe(self._template_changed)
        for cache in self._made.values():
            cache.subscribe(self._made_changed)

    async def run(self) -> None:
        """Follow what there is, for ever; nothing where no templates are named."""
        if not self._is_wanted:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._templates.run(), name="templates")
            for cache in self._made.values():
                group.create_task(cache.run())
            group.create_task(self._served.run(), name="NodeGroups")

    async def lead(self) -> None:
        """Reconcile, for ever."""
        if not self._is_wanted:
            return
        await self._nodes.synced()
        await self._templates.synced()
        for cache in self._made.values():
            await cache.synced()
        self._add_all()
        self.queue.add(_FEATURES, LEFT_SECONDS)
        await self.queue.work(self.reconcile, workers=4)

    async def reconcile(self, key: str) -> float | None:
        """Bring a node's labels, or the objects of all groups, about."""
        if not self._served.is_synced or self._read_epoch != self._served.epoch:
            # A node would be taken out of a group that is not known yet. Once it is, all nodes and
            # workloads are added again.
            return LEFT_SECONDS if key.startswith(_FEATURES) else None
        if key == _WORKLOADS:
            await self._keep_workloads()
        elif key == _FEATURES:
            await self._features.sweep(self._is_discovered)
        elif key.startswith(_FEATURES):
            node = key.removeprefix(_FEATURES)
            if not self._is_discovered(node):
                await self._features.forget(node)
        else:
            await self._keep_node(key)
        return None

    def _node_changed(self, change: Change[Node]) -> None:
        self.queue.add(change.key)
        if not self._is_discovered(change.key):
            self.queue.add(_FEATURES + change.key, LEFT_SECONDS)

    def _template_changed(self, _: Change[ConfigMap]) -> None:
        self._groups_changed()
        self.queue.add(_WORKLOADS)

    def _made_changed(self, _: Change[Meta]) -> None:
        self.queue.add(_WORKLOADS)

    def _groups_changed(self) -> None:
        """Read all groups again, and start over with all that hangs on them."""
        templates = next(iter(self._templates.objects.values()), None)
        if not self._served.is_synced or templates is None:
            return  # Without the templates the release is being removed: nodes stay as they are.
        text = (templates.data or {}).get(reading.VALUES, "")
        found = self._served.objects if self._served.is_served else None
        self._read_epoch = self._served.epoch
        self._world, self._problems = reading.world(found, text, self._world)
        metrics.refused_groups.set(len(self._problems))
        self._add_all()

    def _tell_news(self) -> None:
        """Tell what is wrong with groups and was not told yet; the leader alone does."""
        for name, error in self._problems.items():
            if name not in self._told or str(self._told[name]) != str(error):
                self._tell(name, error)
        self._told = self._problems

    def _tell(self, name: str, error: errors.InvalidError) -> None:
        _log.warning("Node group is left as it was", group=name, error=error)
        for each in self._served.objects:
            if each.metadata.name == name:
                about = recording.of(NODE_GROUP, each.metadata)
                self._report.refused(about, error.reason, error.message)
                return
        for chart in self._templates.objects.values():
            about = recording.of(CONFIG_MAP, chart.metadata)
            self._report.refused(about, error.reason, error.message)

    def _add_all(self) -> None:
        self.queue.add(_WORKLOADS)
        for name in self._nodes.objects:
            self.queue.add(name)

    def _is_discovered(self, name: str) -> bool:
        node = self._nodes.objects.get(name)
        if node is None:
            return False
        found = node.metadata.labels or {}
        member = groups.of_node(found, self._world)
        return member.is_unreadable or groups.is_discovered(found, member.group)

    async def _keep_workloads(self) -> None:
        found = next(iter(self._templates.objects.values()), None)
        if found is None:
            return  # The release is being removed, and what it made goes with the ConfigMap.
        self._tell_news()
        meta = found.metadata
        owner = OwnerReference(
            api_version=CONFIG_MAP.api_version,
            kind=CONFIG_MAP.kind,
            name=meta.name,
            uid=meta.uid or "",
        )
        try:
            templates = workloads.read(found.data)
        except errors.InvalidError as error:
            self._report.refused(recording.of(CONFIG_MAP, meta), error.reason, error.message)
            raise
        before = await self._mig_configs()
        wanted = workloads.wanted(templates, self._world, self._namespace, owner, before=before)
        failed: list[errors.GpudeckError] = []
        for (resource, _), body in wanted.items():
            try:
                await self._apply(resource, body)
            except errors.GpudeckError as error:
                failed.append(error)  # The other groups go on.
                if isinstance(error, errors.InvalidError):
                    self._report.refused(
                        recording.of(CONFIG_MAP, meta), error.reason, error.message
                    )
        kept = self._world.unreadable()
        for resource, cache in self._made.items():
            for made in list(cache.objects.values()):
                key = (made.metadata.labels or {}).get(labels.NODE_GROUP)
                if (resource, made.metadata.name) not in wanted and key not in kept:
                    await self._delete(resource, made.metadata)
        if failed:
            raise next((each for each in failed if _may_pass(each)), failed[0])

    async def _mig_configs(self) -> str:
        """What groups have said of MIG before, for those that say nothing readable now."""
        if not self._world.unreadable():
            return ""
        try:
            found = await self._client.get(
                CONFIG_MAP, labels.GROUP_MIG_CONFIGS, ConfigMap, namespace=self._namespace
            )
        except errors.NotFoundError:
            return ""
        return (found.data or {}).get(configs.KEY, "")

    async def _apply(self, resource: Resource, body: workloads.Object) -> None:
        """Applied at every cause: what is as it must be already is not written by the server."""
        name = body["metadata"]["name"]
        before = self._made[resource].objects.get(f"{self._namespace}/{name}")
        applied = await self._client.apply(resource, body, Meta, manager=labels.MANAGER_NODE_GROUPS)
        after = applied.metadata
        if before is not None and (
            before.metadata.resource_version == after.resource_version
            or (after.generation and before.metadata.generation == after.generation)
        ):
            return
        metrics.writes.labels(resource.kind).inc()
        _log.info("Wrote an object of a group", kind=resource.kind, name=name)

    async def _delete(self, resource: Resource, meta: ObjectMeta) -> None:
        try:
            await self._client.delete(resource, meta.name, namespace=self._namespace, uid=meta.uid)
        except errors.NotFoundError:
            return
        metrics.writes.labels(resource.kind).inc()
        _log.info("Deleted what was of a group", kind=resource.kind, name=meta.name)

    async def _keep_node(self, name: str) -> None:
        node = self._nodes.objects.get(name)
        if node is not None:
            await self._keep_labels(name, node)
            problem = groups.problem(node.metadata.labels or {}, self._world)
            await self._teller.tell(node, problem)

    async def _keep_labels(self, name: str, node: Node) -> None:
        current = node.metadata.labels or {}
        member = groups.of_node(current, self._world)
        if member.is_unreadable:
            return
        wanted = groups.wanted_labels(
            member.group, current, default_mig_config=self._default_mig_config
        )
        if groups.is_labelled(current, wanted):
            return
        # The UID keeps the apply from making a Node that is gone.
        body = Meta(metadata=ObjectMeta(name=name, uid=node.metadata.uid, labels=wanted or None))
        try:
            await self._client.apply(NODE, body, Meta, manager=labels.MANAGER_NODE_GROUPS)
        except errors.NotFoundError:
            return  # The Node is gone; one that is made anew comes by the watch.
        metrics.writes.labels(NODE.kind).inc()
        _log.info("Labelled node", node=name, group=wanted.get(labels.NODE_GROUP))


def _may_pass(error: errors.GpudeckError) -> bool:
    return isinstance(error, errors.RetryableError | errors.ForbiddenError)


def _template(found: ConfigMap) -> ConfigMap:
    meta = found.metadata
    return ConfigMap(
        metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid),
        data=found.data,
    )


def _trimmed(found: Meta) -> Meta:
    """What tells that somebody changed it; the status of its pods wakes nobody."""
    meta = found.metadata
    return Meta(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            generation=meta.generation,
            labels=meta.labels,
            owner_references=meta.owner_references,
        )
    )


def _versioned(found: Meta) -> Meta:
    """ConfigMaps and Roles have no generation: any change of one counts."""
    kept = _trimmed(found)
    kept.metadata.resource_version = found.metadata.resource_version
    return kept


_MADE = ((DAEMON_SET, _trimmed), (CONFIG_MAP, _versioned), (ROLE, _versioned))
"""What is made of groups, with what is kept of each."""
