# SPDX-License-Identifier: Apache-2.0
"""What the cards of the cluster could give at most to one claim of a class, held or not.

In memory, counted change by change like `gpuclass.tally`: cards that are alike are one
model, so a question looks at a dozen models and not at 40,000 cards. All devices of a
claim come from one node (a ResourceSlice of ours belongs to a node), so what counts is
the node with the most. Asked by `claims` and `sizes`; decides nothing.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator

from gpudeck.api import attributes, labels, quantities, selectors
from gpudeck.api.core import Node
from gpudeck.api.selectors import Traits
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.api.v1alpha1.gpuclass import GPUClassSpec
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU

_KEPT = 1024
"""Answers kept at most; there are as many as classes."""


@dataclasses.dataclass(frozen=True)
class Profile:
    """A kind of partition of a model; memory in bytes."""

    name: str
    memory: int
    instances: int


@dataclasses.dataclass(frozen=True)
class Model:
    """Cards that are alike to every class."""

    traits: Traits
    profiles: tuple[Profile, ...]


@dataclasses.dataclass(frozen=True)
class Reach:
    """The most that one claim of a class could ever get of the cards that there are."""

    largest: int
    """Bytes of the largest device that the class selects."""
    devices: int | None
    """Devices that one node could give at once; None for shares, of which there is no number."""


class Fleet:
    """The models of the cluster and how many of each are in which node."""

    def __init__(self, *, default_mode: str = labels.MODE_DRA) -> None:
        """`default_mode` is that of nodes that come, while none is there yet."""
        self.plugin_nodes: set[str] = set()
        """The nodes whose cards a device plugin hands out: of as many devices as its config says,
        and without kube-scheduler allocating anything."""
        self._dra_nodes: set[str] = set()
        self._default_mode = default_mode
        self._models: dict[Model, collections.Counter[str]] = {}
        self._unread: collections.Counter[str] = collections.Counter()
        """By maker: cards of which the maker's library has not told anything yet."""
        self._known: dict[int, tuple[GPUClassSpec, Reach | None]] = {}
        """Answers until a card changes, by the identity of the spec, which is kept with it."""

    def node_changed(self, name: str, node: Node | None) -> None:
        """Take over a change of one Node; None if it is gone."""
        found = (node.metadata.labels if node is not None else None) or {}
        mode = found.get(labels.ACTIVE_MODE)
        for each, nodes in (
            (labels.MODE_DEVICE_PLUGIN, self.plugin_nodes),
            (labels.MODE_DRA, self._dra_nodes),
        ):
            if mode == each:
                nodes.add(name)
            else:
                nodes.discard(name)

    @property
    def has_plugins(self) -> bool:
        """Whether nodes are in device plugin mode, or will be by default if there are none yet."""
        by_default = self._default_mode == labels.MODE_DEVICE_PLUGIN and not self._dra_nodes
        return bool(self.plugin_nodes) or by_default

    def may_be_plugins(self, resource: str) -> bool:
        """Whether a device plugin may offer the extended resource: names of our own are DRA's."""
        return self.has_plugins and not resource.startswith(f"{labels.GROUP}/")

    def change(self, old: PhysicalGPU | None, new: PhysicalGPU | None) -> None:
        """Take over a change of one card.

        A lost one counts until its PhysicalGPU goes: a card that is reset is lost for a moment,
        and a pod that is refused meanwhile would have run.
        """
        before, after = _placed(old), _placed(new)
        if before == after:
            return
        self._known.clear()
        if before is not None:
            self._add(*before, -1)
        if after is not None:
            self._add(*after, 1)

    def _add(self, model: Model, node: str, sign: int) -> None:
        if model.traits.memory_bytes is None:
            self._unread[model.traits.vendor or ""] += sign
            return
        nodes = self._models.setdefault(model, collections.Counter())
        nodes[node] += sign
        if nodes[node] <= 0:
            del nodes[node]
        if not nodes:
            del self._models[model]

    def models(self, spec: GPUClassSpec) -> Iterator[Model]:
        """Give the models that meet what the class requires of a card. Raises InvalidError."""
        for model in self._models:
            if not selectors.card_mismatches(spec, model.traits):
                yield model

    def profiles(self) -> list[str]:
        """Return the names of all profiles that any card has, smallest memory first."""
        found = {each.name: each.memory for model in self._models for each in model.profiles}
        return sorted(found, key=lambda name: (found[name], name))

    def reach(self, spec: GPUClassSpec) -> Reach | None:
        """Return what one claim of the class could get. Raises InvalidError.

        None if nobody can tell: if no card meets what the class requires of it (one may be on
        its way, as in a group of nodes that grows on demand), or if there is a card of which
        nothing is known yet. Kept until a card changes: a question costs no walk over nodes.
        """
        known = self._known.get(id(spec))
        if known is None or known[0] is not spec:
            if len(self._known) >= _KEPT:
                self._known.clear()
            known = self._known[id(spec)] = (spec, self._reach(spec))
        return known[1]

    def _reach(self, spec: GPUClassSpec) -> Reach | None:
        if any(
            count and (not spec.vendor or vendor in ("", spec.vendor))
            for vendor, count in self._unread.items()
        ):
            return None
        sizes: list[int] = []
        nodes: collections.Counter[str] = collections.Counter()
        countable = gpuclass.SHARE not in selectors.kinds(spec)
        known = False
        for model in self.models(spec):
            known = True
            chosen = _chosen(spec, model)
            sizes += [size for size, _ in chosen]
            most = max((count for _, count in chosen), default=0)
            for node, cards in self._models[model].items() if most else ():
                nodes[node] += cards * most
        if not known:
            return None
        devices = max(nodes.values(), default=0) if countable else None
        return Reach(max(sizes, default=0), devices)


def _chosen(spec: GPUClassSpec, model: Model) -> list[tuple[int, int]]:
    """Return size and number of what the class selects of one empty card, kind by kind.

    Different profiles of one card exclude each other in ways that only its placements tell,
    so the number is an upper bound: that of the profile of which most fit.
    """
    found = []
    whole = model.traits.memory_bytes or 0
    for kind in selectors.kinds(spec):
        if kind != gpuclass.PARTITION:
            found.append((whole, 1))
            continue
        rules = selectors.kind_rules(spec, kind)
        for profile in model.profiles:
            traits = dataclasses.replace(
                model.traits,
                type=attributes.TYPE_MIG,
                profile=profile.name,
                memory_bytes=profile.memory,
                card_memory_bytes=whole,
            )
            if all(rule.holds(rule.fact(traits)) for rule in rules):
                found.append((profile.memory, profile.instances))
    return found


def _placed(gpu: PhysicalGPU | None) -> tuple[Model, str] | None:
    if gpu is None or gpu.status is None:
        return None
    capabilities = gpu.status.capabilities
    support = capabilities.partition_support if capabilities else None
    profiles = tuple(
        Profile(each.name, each.memory_mib * quantities.MEBIBYTE, each.max_instances)
        for each in (support.profiles if support else None) or ()
    )
    node = (gpu.metadata.labels or {}).get(labels.NODE, "")
    return Model(selectors.traits_of_gpu(gpu), profiles), node
