# SPDX-License-Identifier: Apache-2.0
"""`gpudeck cleanup`: take off all Nodes what gpudeck wrote there, once it is uninstalled.

Run by the chart's Job after `helm uninstall`, or by hand. The Leases go by which replicas agreed
who leads; all else of a release is Helm's to remove. A Node that was left in the middle of
a change is given back: its taints, the labels that paused workloads, the annotations of the
change. Labels of administrators stay, and so does what is not on Nodes. Each write follows
from the Node as it is, so a run that was ended goes on with the next one.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import click
import msgspec

import gpudeck
from gpudeck import errors
from gpudeck.api import conditions, labels
from gpudeck.api.core import Node, OwnedNode
from gpudeck.api.meta import Meta
from gpudeck.api.resources import DEPLOYMENT, LEASE, NODE
from gpudeck.cli import output, reading
from gpudeck.features import deciding, planning
from gpudeck.kube.client import Client
from gpudeck.mig import nodes

AT_A_TIME = 8
TRIES = 5
"""For a Node that others write to at the same time."""
SHOWN = 3
"""Nodes that a refusal names."""
_CONDITIONS = {
    conditions.MODE_ACTIVE: labels.MANAGER_CONTROLLER,
    conditions.NODE_GROUP_FOLLOWED: labels.MANAGER_NODE_GROUPS,
    conditions.PLUGIN_CONFIGURED: labels.MANAGER_DEVICE_PLUGIN,
    conditions.MIG_CONFIGURED: labels.MANAGER_MIG_MANAGER,
}
"""Who has written each condition of ours."""
_LEFT = (
    "What is not on Nodes stays: partitions of cards; the custom resource definitions of "
    f"{labels.GROUP} and nfd.k8s-sigs.io with their objects; DeviceTaintRules of cordoned cards."
)


@click.command()
@click.option("--features", is_flag=True, help="Also what node features gave to Nodes.")
@click.option("--namespace", default="", help="Where gpudeck was; default: that of the context.")
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=60.0, show_default=True,
    help="How long it may take.",
)  # fmt: skip
@reading.connecting
def cleanup(
    *, features: bool, namespace: str, seconds: float, server: reading.Server, as_json: bool
) -> None:
    """Take off all Nodes what gpudeck wrote there, once it is uninstalled.

    Labels that administrators set stay, so that a new installation finds them.
    """

    async def work(client: Client) -> Outcome:
        try:
            async with asyncio.timeout(seconds):
                where = namespace or client.namespace
                await _check_gone(client, where)
                found = await clean(client, features=features)
                await release(client, where, features=features)
                return found
        except TimeoutError as error:
            raise errors.UnavailableError(
                f"not all Nodes are clean after {seconds:g} s; run `gpudeck cleanup` again",
                reason="CleanupTimeout",
            ) from error

    outcome = reading.run(server, work)
    if as_json:
        output.show_json(dataclasses.asdict(outcome))
    else:
        output.show(f"Nodes that gpudeck had written to: {outcome.cleaned} of {outcome.nodes}.")
        for label, count in outcome.kept.items():
            output.show(f"The label {label} stays on {count}, as an administrator's.")
        output.show(_LEFT)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How many Nodes there are and how many were written to, and which labels stay on how many."""

    nodes: int
    cleaned: int
    kept: dict[str, int]


async def _check_gone(client: Client, namespace: str) -> None:
    """Raise BusyError while a controller is installed, which would write all anew."""
    try:
        found = await client.get(DEPLOYMENT, labels.CONTROLLER, Meta, namespace=namespace)
    except errors.NotFoundError:
        return
    if found.metadata.deletion_timestamp is None:
        raise errors.BusyError(
            f"the Deployment {namespace}/{labels.CONTROLLER} is there, and would write to Nodes "
            "again; run `helm uninstall` first",
            reason="StillInstalled",
        )


async def clean(client: Client, *, features: bool) -> Outcome:
    """Clean every Node. Raises UnavailableError that names those of which it was refused."""
    found = (await client.list(NODE, OwnedNode)).items
    turns = asyncio.Semaphore(AT_A_TIME)
    refused: dict[str, errors.GpudeckError] = {}
    after: list[Node] = []

    async def one(node: OwnedNode) -> bool:
        async with turns:
            try:
                left = await _clean(client, node, features=features)
            except errors.GpudeckError as error:
                refused[node.metadata.name] = error
                return False
            after.append(left)
            return left.metadata.resource_version != node.metadata.resource_version

    cleaned = sum(await asyncio.gather(*map(one, found)))
    if refused:
        told = "; ".join(f"{name}: {refused[name]}" for name in sorted(refused)[:SHOWN])
        raise errors.UnavailableError(
            f"{len(refused)} of {len(found)} Nodes are not clean: {told}", reason="CleanupRefused"
        )
    return Outcome(len(found), cleaned, kept(after))


async def release(client: Client, namespace: str, *, features: bool) -> None:
    """Delete the Leases of the processes that are gone; Helm does not know of them."""
    for name in (labels.CONTROLLER, *([labels.FEATURES_MASTER] if features else ())):
        with contextlib.suppress(errors.NotFoundError):
            await client.delete(LEASE, name, namespace=namespace)


async def _clean(client: Client, node: OwnedNode, *, features: bool) -> Node:
    for _ in range(TRIES):
        try:
            return await _write(client, node, features=features)
        except errors.NotFoundError:
            return node  # It went meanwhile.
        except errors.ConflictError:
            node = await client.get(NODE, node.metadata.name, OwnedNode)
    raise errors.ConflictError("others keep writing to the Node", reason="Conflict")


async def _write(client: Client, found: OwnedNode, *, features: bool) -> Node:
    """Write what is to be written. Raises ConflictError if the Node is not as it was read."""
    name, uid = found.metadata.name, found.metadata.uid
    taken = marks(found)
    node: Node = found
    if taken is not None:
        node = await client.merge_patch(NODE, name, taken, Node, manager=labels.MANAGER_CLI)
    if features:
        plan = planning.plan(node, deciding.Wanted(), gpudeck.__version__)
        for patch, part in planning.bound(node, plan):
            node = await client.merge_patch(
                NODE, name, patch, Node, subresource=part, manager=labels.MANAGER_CLI
            )
    for manager, fields in owned(node):
        body = {"metadata": {"name": name, "uid": uid}, **fields}
        part = "status" if fields else ""
        node = await client.apply(NODE, body, Node, manager=manager, subresource=part)
    return node


def marks(node: OwnedNode) -> dict[str, Any] | None:
    """Return the merge patch that gives a Node back; None if nothing is to be given back. Pure.

    What belongs to a change of partitions is only ours where its record or its cordon is.
    """
    meta = node.metadata
    known, notes = meta.labels or {}, meta.annotations or {}
    changes = labels.MIG_CHANGE in notes or labels.MANAGER_MIG_MANAGER in node.cordoned_by()
    given = (nodes.patch(node, nodes.Wish()) if changes else None) or {}
    of_mig, spec = given.get("metadata", {}), given.get("spec", {})
    taints = (node.spec.taints if node.spec else None) or []
    drop = {labels.MODE_CHANGE, *([labels.MIG_TAINT] if given else [])}
    left = [each for each in taints if each.key not in drop]
    if len(left) < len(taints):
        spec = {**spec, "taints": [msgspec.to_builtins(each) for each in left]}
    gone = {
        "labels": _none(known, lambda name: name == labels.ACTIVE_MODE) | of_mig.get("labels", {}),
        "annotations": _none(notes, _is_ours) | of_mig.get("annotations", {}),
    }
    if not any(gone.values()) and not spec:
        return None
    of_node = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    return {"metadata": {**of_node, **gone}, **({"spec": spec} if spec else {})}


def _none(known: Iterable[str], is_gone: Callable[[str], bool]) -> dict[str, None]:
    return {name: None for name in known if is_gone(name)}


def _is_ours(name: str) -> bool:
    return name.startswith(f"{labels.GROUP}/")


def owned(node: Node) -> list[tuple[str, dict[str, Any]]]:
    """Return what is to be applied, with its field manager, that has nothing there after it. Pure.

    So goes what the processes have applied, and what somebody else set by the same name stays.
    """
    known = node.metadata.labels or {}
    found: list[tuple[str, dict[str, Any]]] = []
    if labels.VENDOR in known:
        found.append((labels.MANAGER_NODE_AGENT, {}))
    if labels.NODE_GROUP in known:
        found.append((labels.MANAGER_NODE_GROUPS, {}))
    for each in (node.status.conditions if node.status else None) or ():
        if each.type in _CONDITIONS:
            found.append((_CONDITIONS[each.type], {"status": {}}))
    return found


def kept(found: Iterable[Node]) -> dict[str, int]:
    """Return on how many Nodes labels of administrators stay, by label. Pure."""
    return dict(
        sorted(
            collections.Counter(
                name
                for node in found
                for name in node.metadata.labels or ()
                if _is_ours(name) or name == labels.MIG_CONFIG
            ).items()
        )
    )
