# SPDX-License-Identifier: Apache-2.0
"""How much memory a share has on this node where neither claim nor class says so.

The process's setting, or the label of the Node, which an administrator may change at any time:
`publishing` asks and is woken. In Kubernetes the amount belongs to the device, not to the class
(resource.k8s.io/v1, request policy), so it is one a node. What is held already keeps its amount.
"""

from __future__ import annotations

from collections.abc import Callable

from gpudeck import errors, logs
from gpudeck.api import labels, quantities, resources
from gpudeck.api.core import Node, NodeSpec
from gpudeck.api.meta import ObjectMeta
from gpudeck.dra import events, offering
from gpudeck.errors import InvalidError
from gpudeck.kube import client, watching
from gpudeck.kube.caching import Cache

log = logs.get(__name__)

_READ = (labels.SHARE_MEMORY, labels.MIG_MODE, labels.MIG_CONFIG)
"""Labels of the Node that the plugin reads."""
_ALLOWED = "a Kubernetes quantity of at least 1Mi, such as 4Gi"


class Amounts:
    """Follows the label of one Node; `cache.run` must run. `switching`, `withdrawing` and
    `inheriting` read the same cache."""

    def __init__(
        self,
        api: client.Client,
        node_events: events.NodeEvents,
        node_name: str,
        *,
        default: str,
    ) -> None:
        """Raises InvalidError if the setting `default` is no amount."""
        self._events = node_events
        self._default = self._current = parse(default, "--share-memory")
        self._listeners: list[Callable[[], None]] = []
        self.cache = Cache(
            api,
            resources.NODE,
            Node,
            field_selector=f"metadata.name={node_name}",
            keep=_trimmed,
        )
        self.cache.subscribe(self._changed)

    def policy(self) -> offering.SharePolicy:
        """Return what a share is now; the label counts once the cache is synced."""
        return offering.SharePolicy(default_bytes=self._current)

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call back when the amount has changed."""
        self._listeners.append(changed)

    def _changed(self, change: watching.Change[Node]) -> None:
        wanted = self._wanted(change.new)
        if wanted == self._current:
            return
        self._current = wanted
        log.info("Memory of a share has changed", amount=quantities.render(wanted))
        for listener in self._listeners:
            listener()

    def _wanted(self, node: Node | None) -> int:
        text = (node.metadata.labels or {}).get(labels.SHARE_MEMORY) if node else None
        if text is None:
            return self._default
        try:
            return parse(text, f"label {labels.SHARE_MEMORY}")
        except InvalidError as error:
            self._events.label_refused(str(error), quantities.render(self._default))
            return self._default


def parse(text: str, field: str) -> int:
    """Return an amount in bytes. Raises InvalidError naming `field`, the value, and what can be."""
    try:
        amount = quantities.parse(text, field)
    except InvalidError:
        amount = 0
    if amount < quantities.MEBIBYTE:
        raise errors.not_valid(field, text, _ALLOWED, reason="InvalidShareMemory")
    return amount


def _trimmed(node: Node) -> Node:
    """What the plugin reads of a Node, so that the kubelet's reports of its state wake nobody."""
    found = node.metadata.labels or {}
    kept = {name: found[name] for name in _READ if name in found}
    taints = [
        each
        for each in (node.spec.taints if node.spec else None) or ()
        if each.key == labels.MODE_CHANGE
    ]
    return Node(
        metadata=ObjectMeta(name=node.metadata.name, labels=kept or None),
        spec=NodeSpec(taints=taints) if taints else None,
    )
