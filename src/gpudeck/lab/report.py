# SPDX-License-Identifier: Apache-2.0
"""What a lab is doing, for `lab status`, `lab logs` and `lab shell`.

Reads the record, the processes and the API server; changes nothing. `describe` gives plain
values that `--json` prints as they are and `render` lays out for people.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpudeck import errors
from gpudeck.lab import apiclient, cluster, hardware, network, node, processes
from gpudeck.lab.state import CONTROL_PLANE, Folder, Lab, Node, Process

# What people call the daemons, and what their logs are called.
ALIASES = {
    "apiserver": "kube-apiserver",
    "controller-manager": "kube-controller-manager",
    "scheduler": "kube-scheduler",
    "proxy": "kube-proxy",
}
_FOLLOW_SECONDS = 0.2


def state_of(lab: Lab) -> str:
    """In a word: up, degraded (something died), down (all of it died) or creating."""
    nodes = list(lab.nodes.values())
    if not any(processes.alive(each.init) for each in nodes):
        return "down"
    if lab.phase != "up":
        return lab.phase
    whole = processes.alive(lab.registry) and all(
        processes.alive(each.daemons.get(name)) for each in nodes for name in cluster.daemons(each)
    )
    return "up" if whole else "degraded"


def describe(folder: Folder, lab: Lab) -> dict[str, Any]:
    """Everything that `lab status` knows, as plain values."""
    ready = _ready(folder)
    plan = network.Plan(lab.subnet) if lab.subnet is not None else None
    return {
        "name": lab.name,
        "state": state_of(lab),
        "created": lab.created,
        "server": plan.server if plan else None,
        "kubeconfig": str(folder.kubeconfig),
        "hostRoot": lab.host_root,
        "nodes": [_node(each, plan, ready) for each in lab.nodes.values()],
    }


def _node(each: Node, plan: network.Plan | None, ready: Mapping[str, bool]) -> dict[str, Any]:
    cards = hardware.card_addresses(each) if each.machine else []
    return {
        "name": each.name,
        "machine": each.machine,
        "cards": len(cards),
        "address": plan.address(each.index) if plan else None,
        "ready": ready.get(each.name),
        "bootId": each.boot_id,
        "processes": {name: _pid(each.daemons.get(name)) for name in cluster.daemons(each)},
    }


def _pid(process: Process | None) -> int | None:
    return process.pid if process is not None and processes.alive(process) else None


def _ready(folder: Folder) -> dict[str, bool]:
    """Which nodes are Ready; empty when the API server does not answer."""
    if not folder.kubeconfig.exists():
        return {}
    try:
        items = apiclient.ApiClient(folder.kubeconfig).get("/api/v1/nodes")["items"]
    except errors.UnavailableError:
        return {}
    return {
        item["metadata"]["name"]: node.is_ready(item, item["status"]["nodeInfo"]["bootID"])
        for item in items
    }


def render(found: Mapping[str, Any]) -> str:
    """Lay out what `describe` gave."""
    rows = [("NODE", "STATUS", "ADDRESS", "MACHINE", "CARDS", "PROCESSES")]
    for each in found["nodes"]:
        stopped = [name for name, pid in each["processes"].items() if pid is None]
        status = {True: "Ready", False: "NotReady", None: "Unknown"}[each["ready"]]
        rows.append(
            (
                each["name"],
                status,
                each["address"] or "-",
                each["machine"] or "-",
                str(each["cards"]) if each["machine"] else "-",
                f"stopped: {', '.join(stopped)}" if stopped else "all run",
            )
        )
    head = (
        f"Lab {found['name']} is {found['state']}, made {found['created']}\n"
        f"API server {found['server']}, kubeconfig {found['kubeconfig']}\n"
    )
    return f"{head}\n{columns(rows)}"


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Align rows of text; the last column is as wide as it likes."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def log_of(folder: Folder, lab: Lab, component: str) -> Path:
    """The log file of `apiserver`, `kubelet:node-0` and so on; InvalidError names them all."""
    name, _, where = component.partition(":")
    name = ALIASES.get(name, name)
    place = where or CONTROL_PLANE
    path = folder.logs / place / f"{name}.log"
    if place in lab.nodes and path.is_file():
        return path
    known = [
        each.stem if name == CONTROL_PLANE else f"{each.stem}:{name}"
        for name in lab.nodes
        for each in sorted((folder.logs / name).glob("*.log"))
    ]
    raise errors.InvalidError(
        f"COMPONENT: {component!r} has no log; there are: {', '.join(known)} "
        f"(short names: {', '.join(ALIASES)})",
        reason="LogNotFound",
    )


def read_log(path: Path, *, tail: int | None = None, follow: bool = False) -> Iterator[str]:
    """Yield the lines of a log, the last `tail` of them only, and those that come when followed."""
    with path.open(errors="replace") as lines:
        if tail is None:
            yield from lines
        else:
            yield from deque(lines, maxlen=tail)
        while follow:
            if line := lines.readline():
                yield line
            else:
                time.sleep(_FOLLOW_SECONDS)


def init_of(lab: Lab, name: str) -> Process:
    """The first process of a running node; UnavailableError says how to get it back."""
    found = lab.node(name)
    if found.init is None or not processes.alive(found.init):
        raise errors.UnavailableError(
            f"node {name} of lab {lab.name} does not run; start it with: "
            f"gpudeck lab node reboot {name} --name {lab.name}",
            reason="NodeDown",
        )
    return found.init
