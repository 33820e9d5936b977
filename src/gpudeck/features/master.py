# SPDX-License-Identifier: Apache-2.0
"""The master: one replica leads and gives Nodes what their features and the rules say.

Nothing is decided before the lists of Nodes, NodeFeatures and rules have been read to their
ends: an unfilled cache is not "no features". A NodeFeature that is deleted counts on for
`absent_seconds`, because its writer may only be restarting; and for as long after the start of
the master nothing is removed from a Node, since that writer may have been restarting then.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import gpudeck
from gpudeck import errors, logs
from gpudeck.api import labels, names
from gpudeck.api.core import Node, NodeSpec, NodeStatus
from gpudeck.api.labelselectors import fulfils
from gpudeck.api.meta import Meta, ObjectMeta, ObjectReference
from gpudeck.api.nodefeatures import NodeFeatureGroup, NodeFeatureRule
from gpudeck.api.resources import (
    NAMESPACE,
    NODE,
    NODE_FEATURE,
    NODE_FEATURE_GROUP,
    NODE_FEATURE_RULE,
)
from gpudeck.features import (
    configuring,
    deciding,
    following,
    grouping,
    metrics,
    packing,
    planning,
    presence,
    settings,
)
from gpudeck.features.packing import PackedFeature
from gpudeck.features.rules import effort
from gpudeck.features.settings import Settings
from gpudeck.host import certificates
from gpudeck.kube import recording, serving
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.electing import Elector
from gpudeck.kube.queueing import Queue
from gpudeck.kube.watching import Change

GROUP_SECONDS = 0.5
"""How long changes of a group's nodes are gathered before they are written."""
LIGHT_BYTES = 256 * 1024
"""Text of a node's NodeFeatures that is soon looked through."""
REPEAT_SECONDS = 1.0
"""Shortest time between two equal writes, lest one who also keeps a label gets a storm."""
T = TypeVar("T")
_log = logs.get(__name__)


class Master:
    """The parts of the role and what connects them: changes become names of Nodes in a queue."""

    def __init__(self, given: Settings, api: Client) -> None:
        self._file = following.File(given, configuring.master)
        # A wrong file is refused here, before anything runs.
        self._file.load()
        self._api = api
        self._namespace = given.namespace or api.namespace
        self._nodes = Cache(api, NODE, Node, keep=_trimmed)
        page = self._settings.page_size
        self._features = Cache(api, NODE_FEATURE, PackedFeature, keep=packing.pack, page=page)
        self._namespaces = Cache(api, NAMESPACE, Meta, keep=_labelled)
        self._follows_namespaces = False
        self._rules = Cache(api, NODE_FEATURE_RULE, NodeFeatureRule)
        self._groups = Cache(api, NODE_FEATURE_GROUP, NodeFeatureGroup)
        self._present = presence.Presence(given.absent_seconds)
        self._membership = grouping.Membership()
        self._thinking = asyncio.Lock()
        """Held by whoever works out something in a thread; two would only hinder each other."""
        self._named = deciding.named(())
        self._has_new_rules = False
        self._names: dict[str, str] = {}
        """Names of Nodes by what a label says of them, which may be shorter."""
        self._told: dict[str, frozenset[str]] = {}
        self._written: dict[str, tuple[float, planning.Plan]] = {}
        self._settled: dict[str, bytes] = {}
        """What Nodes look like for which nothing is to be done, until features or rules change."""
        self._queue = Queue("nodes")
        self._rule_queue = Queue("rules")
        self._group_queue = Queue("groups")
        identity = given.identity or socket.gethostname()
        self._recorder = recording.Recorder(api, labels.FEATURES_MASTER, instance=identity)
        self._elector = Elector(
            api,
            name=labels.FEATURES_MASTER,
            namespace=self._namespace,
            identity=identity,
            lease_seconds=self._settings.lease_seconds,
            renew_seconds=self._settings.renew_seconds,
            retry_seconds=self._settings.retry_seconds,
        )

    @property
    def _settings(self) -> Settings:
        return self._file.current.settings

    async def run(self) -> None:
        """Run every part until one of them fails."""
        async with asyncio.TaskGroup() as group:
            for cache in self._caches():
                group.create_task(cache.run())
            group.create_task(self._recorder.run(), name="events")
            group.create_task(self._serve(), name="serving")
            group.create_task(self._stand(group), name="leading")

    def _caches(self) -> tuple[Cache[Any], ...]:
        return (self._nodes, self._features, self._rules, self._groups)

    async def _serve(self) -> None:
        async def text() -> bytes:
            metrics.leading.set(self._elector.is_leader)
            return await metrics.text()

        await serving.serve(
            self._settings, self._api, text=text, certificate=certificates.self_signed
        )

    async def _stand(self, group: asyncio.TaskGroup) -> None:
        await self._follow_namespaces(self._file.current, group)
        for cache in self._caches():
            await cache.synced()
        self._present.begin(asyncio.get_running_loop().time())
        self._nodes.subscribe(self._node_changed)
        self._features.subscribe(self._feature_changed)
        self._rules.subscribe(self._rule_changed)
        self._groups.subscribe(self._group_changed)
        group.create_task(
            self._file.watch(self._add_all, ready=lambda now: self._follow_namespaces(now, group)),
            name="config",
        )
        while True:
            # The elector has told why, and `_lead` has ended by the time that it raises.
            with contextlib.suppress(errors.LeadershipLostError):
                await self._elector.run(self._lead)

    async def _follow_namespaces(self, now: following.Configured, group: asyncio.TaskGroup) -> None:
        """Know the labels of all namespaces before anything is decided by them."""
        if now.namespaces is None or self._follows_namespaces:
            return
        self._follows_namespaces = True
        group.create_task(self._namespaces.run(), name="namespaces")
        await self._namespaces.synced()
        self._namespaces.subscribe(lambda _change: self._add_all())

    async def _lead(self) -> None:
        _log.info("Labelling nodes", nodes=len(self._nodes.objects), rules=len(self._named))
        self._add_all()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.work(self._reconcile, workers=self._settings.workers))
            group.create_task(self._group_queue.work(self._reconcile_group))
            group.create_task(self._rule_queue.work(self._check_rule))
            group.create_task(self._sweep())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._settings.resync_seconds)
            self._add_all()

    def _decide_anew(self, names: Iterable[str]) -> None:
        """What was decided for these nodes may hold no more."""
        for name in names:
            self._settled.pop(name, None)
            self._queue.add(name)

    def _add_all(self) -> None:
        self._decide_anew(self._nodes.objects)
        for key in self._groups.objects:
            self._group_queue.add(key)

    def _counts(self, found: PackedFeature) -> bool:
        """Whether NodeFeatures of its namespace are let in."""
        namespace, now = found.metadata.namespace or "", self._file.current
        if now.settings.feature_namespaces and namespace not in now.settings.feature_namespaces:
            return False
        if now.namespaces is None:
            return True
        held = self._namespaces.objects.get(namespace)
        return held is not None and fulfils(held.metadata.labels or {}, now.namespaces)

    def _held(self, name: str) -> tuple[list[PackedFeature], float | None]:
        """The NodeFeatures that count for a node, and when to ask again, in seconds."""
        now = asyncio.get_running_loop().time()
        held, again = self._present.of(names.node_label(name), now)
        return [each for each in held if self._counts(each)], again

    def _node_changed(self, change: Change[Node]) -> None:
        label = names.node_label(change.key)
        if change.new is None:
            self._names.pop(label, None)
            metrics.refused.dec(len(self._told.pop(change.key, ())))
            self._written.pop(change.key, None)
            self._settled.pop(change.key, None)
            self._write_groups(self._membership.gone(change.key))
            return
        self._names[label] = change.key
        self._queue.add(change.key)

    def _feature_changed(self, change: Change[PackedFeature]) -> None:
        now = asyncio.get_running_loop().time()
        touched = self._present.change(change.key, change.old, change.new, now)
        self._decide_anew(self._names[label] for label in touched if label in self._names)

    def _rule_changed(self, change: Change[NodeFeatureRule]) -> None:
        if change.old is not None and change.new is not None and change.old.spec == change.new.spec:
            return
        self._rule_queue.add(change.key)
        if not self._has_new_rules:
            self._has_new_rules = True  # Of many that come at once, the last calls for a pass.
            asyncio.get_running_loop().call_soon(self._take_rules)

    def _take_rules(self) -> None:
        self._has_new_rules = False
        self._named = deciding.named(self._rules.objects.values())
        self._decide_anew(self._nodes.objects)

    def _group_changed(self, change: Change[NodeFeatureGroup]) -> None:
        if change.new is None:
            self._membership.end(change.key)
        else:
            self._group_queue.add(change.key)

    def _write_groups(self, keys: Iterable[str]) -> None:
        """Soon, since one change of a cluster changes several nodes of a group."""
        for key in keys:
            self._group_queue.add(key, GROUP_SECONDS)

    async def _check_rule(self, key: str) -> None:
        """Say what makes no sense in a rule, whether or not a node fulfils it."""
        rule = self._rules.objects.get(key)
        if rule is None:
            return
        policy = settings.policy(self._settings)
        async with self._thinking:
            said = await asyncio.to_thread(deciding.said_of, rule, policy)
        if key in self._rules.objects:
            for message in said:
                self._refuse(self._rule(key), message)

    async def _reconcile(self, name: str) -> float | None:
        # Many nodes may be right as they are, and the lease must be renewed between them.
        await asyncio.sleep(0)
        node = self._nodes.objects.get(name)
        if node is None or self._settled.get(name) == planning.fingerprint(node):
            return None
        self._settled[name] = b""  # Gone if features or rules change until it is written.
        now = asyncio.get_running_loop().time()
        wanted, again = await self._decide(name)
        node = self._nodes.objects.get(name)
        if node is None:
            return None
        if not self._settings.allow_overwrite:
            wanted = planning.respecting(node, wanted)
        self._report(node, wanted)
        left = self._present.patience(now)
        if left is not None:
            wanted = planning.patient(node, wanted)
            again = left if again is None else min(left, again)
        plan = planning.plan(node, wanted, gpudeck.__version__)
        if plan != planning.Plan():
            if self._settings.no_publish:
                return again
            before, last = self._written.get(name, (0.0, None))
            if last == plan and now - before < REPEAT_SECONDS:
                return before + REPEAT_SECONDS - now
            self._written[name] = (now, plan)
            node, plan = await self._carry_out(node, wanted, plan)
        if again is None and name in self._settled:
            self._settled[name] = planning.fingerprint(planning.applied(node, plan))
        return again

    async def _carry_out(
        self, node: Node, wanted: deciding.Wanted, plan: planning.Plan
    ) -> tuple[Node, planning.Plan]:
        """Write the plan, and return what was written, and to which Node."""
        name = node.metadata.name
        if plan.needs_version:
            # The list of taints is replaced whole, so it must be made of the newest.
            node = await self._api.get(NODE, name, Node)
            plan = planning.plan(node, wanted, gpudeck.__version__)
        for patch, part in planning.bound(node, plan):
            await self._patch(name, patch, part)
        return node, plan

    async def _decide(self, name: str) -> tuple[deciding.Wanted, float | None]:
        """What the Node should have, and after how many seconds to ask again."""
        async with self._thinking:
            held, again = self._held(name)
            work = functools.partial(
                deciding.decide,
                held,
                self._named,
                own_namespace=self._namespace,
                policy=settings.policy(self._settings),
                groups=self._membership.rules(),
            )
            wanted, answers = await _done(work, held)
            if name in self._nodes.objects:
                self._write_groups(self._membership.tell(name, answers))
        return wanted, again

    async def _patch(self, name: str, patch: dict[str, Any], subresource: str) -> None:
        _log.info("Writing what features give a node", node=name, what=subresource or "metadata")
        try:
            await self._api.merge_patch(
                NODE,
                name,
                patch,
                Meta,
                subresource=subresource,
                manager=labels.MANAGER_FEATURES_MASTER,
            )
        except errors.NotFoundError:
            return
        except errors.InvalidError as error:
            self._refuse(recording.of_node(name), error.message)
            raise
        metrics.writes.labels(subresource or "node").inc()

    def _report(self, node: Node, wanted: deciding.Wanted) -> None:
        """Say what is not written, once: on the rule if one is to blame, else on the node."""
        name = node.metadata.name
        told = self._told.get(name, frozenset())
        for each in wanted.refused:
            if each.message in told:
                continue
            _log.warning("Left out", node=name, origin=each.origin, error=each.message)
            rule = each.origin in self._rules.objects
            self._refuse(self._rule(each.origin) if rule else recording.of_node(name), each.message)
        self._told[name] = frozenset(each.message for each in wanted.refused)
        metrics.refused.inc(len(self._told[name]) - len(told))

    def _refuse(self, about: ObjectReference, message: str) -> None:
        self._recorder.record(about, reason="FeatureRefused", message=message, warning=True)

    def _rule(self, name: str) -> ObjectReference:
        return recording.of(NODE_FEATURE_RULE, self._rules.objects[name].metadata)

    async def _reconcile_group(self, key: str) -> None:
        group = self._groups.objects.get(key)
        if group is None:
            return
        if self._membership.begin(key, group):
            for name in list(self._nodes.objects):
                await self._ask(key, name)
            self._membership.whole(key)
        status = self._membership.status(key)
        complaint = self._membership.complaint(key)
        if complaint:
            self._refuse(recording.of(NODE_FEATURE_GROUP, group.metadata), complaint)
        if status in (None, group.status) or self._settings.no_publish:
            return
        meta = ObjectMeta(name=group.metadata.name, namespace=group.metadata.namespace)
        with contextlib.suppress(errors.NotFoundError):
            await self._api.apply(
                NODE_FEATURE_GROUP,
                NodeFeatureGroup(metadata=meta, status=status),
                Meta,
                manager=labels.MANAGER_FEATURES_MASTER,
                subresource="status",
            )
            metrics.writes.labels("group").inc()

    async def _ask(self, key: str, name: str) -> None:
        """Ask one node whether it belongs to one group."""
        async with self._thinking:
            rules = self._membership.rules()
            if key not in rules or name not in self._nodes.objects:
                return
            held, _ = self._held(name)
            work = functools.partial(
                deciding.ask, held, own_namespace=self._namespace, groups={key: rules[key]}
            )
            answers = await _done(work, held)
            if name in self._nodes.objects:
                self._membership.tell(name, answers)


async def _done(work: Callable[[], T], held: Iterable[PackedFeature]) -> T:
    """The result of what looks at a node: had at once if it takes a moment, else in a thread.

    A thread costs as much as most nodes do.
    """
    if sum(map(packing.size, held)) <= LIGHT_BYTES:
        with contextlib.suppress(effort.NotSoonError), effort.hurried():
            return work()
    return await asyncio.to_thread(work)


def _labelled(namespace: Meta) -> Meta:
    meta = namespace.metadata
    return Meta(metadata=ObjectMeta(name=meta.name, labels=meta.labels))


def _trimmed(node: Node) -> Node:
    """What is used of a Node, so that the kubelet's reports of its state wake nobody."""
    meta = node.metadata
    return Node(
        metadata=ObjectMeta(
            name=meta.name, uid=meta.uid, labels=meta.labels, annotations=meta.annotations
        ),
        spec=NodeSpec(taints=node.spec.taints) if node.spec and node.spec.taints else None,
        status=NodeStatus(capacity=node.status.capacity) if node.status else None,
    )
