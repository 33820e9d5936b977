# SPDX-License-Identifier: Apache-2.0
"""What happens to a lab: brought up, its nodes added, removed, restarted, rebooted.

`up` converges: a running lab gets back what died of it, a half-made one is cleared first.

A reboot is what it is on hardware: every process of the node ends at once, what was in
memory is gone (/run, CDI files, the host tree), the disk stays, and the kernel has a new
boot id. Called by `cli.lab`; the acts themselves are those of `cluster`.
"""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable, Sequence

from gpudeck import errors
from gpudeck.lab import (
    cluster,
    controlplane,
    limits,
    machine,
    network,
    processes,
    rootfs,
    teardown,
)
from gpudeck.lab.cluster import Cluster
from gpudeck.lab.progress import Progress
from gpudeck.lab.state import CONTROL_PLANE, NAME, Folder, Lab, Node
from gpudeck.lab.supplies import Supplies


def up(
    folder: Folder,
    machines: Sequence[str],
    gather: Callable[[], Supplies],
    *,
    progress: Progress,
    host_root: str = rootfs.HOST,
) -> tuple[Lab, bool]:
    """Bring a lab up; return it and whether it was made now, of what `gather` builds."""
    with folder.locked():
        lab = folder.load()
        if lab is not None and teardown.is_running(lab):
            for revived in repair(Cluster(folder, lab, progress)):
                progress.note(f"started again: {revived}")
            return lab, False
        for each in machines:
            machine.load(each)  # An unknown one is refused before anything is built or cleared.
        supplies = gather()
        limits.raise_inotify(progress.note)
        wanted = cluster.new_lab(folder, machines, supplies, host_root=host_root)
        if lab is not None:
            progress.note(f"clearing what is left of lab {folder.name}")
        teardown.clear(folder, keep_folder=True)
        folder.save(wanted)
        Cluster(folder, wanted, progress).create(supplies)
        return wanted, True


def repair(lab: Cluster) -> list[str]:
    """Start again what died of a running lab; return the name of each."""
    revived = []
    for each in list(lab.lab.nodes.values()):
        if not processes.alive(each.init):
            reboot(lab, each.name)
            revived.append(each.name)
            continue
        dead = [
            name for name in cluster.daemons(each) if not processes.alive(each.daemons.get(name))
        ]
        lab.start(each, dead)
        revived += [f"{name} of {each.name}" for name in dead]
    if not processes.alive(lab.lab.registry):
        lab.start_registry()
        revived.append("registry")
    return revived


def add(lab: Cluster, name: str, made_from: str) -> Node:
    """Add a worker node made from a machine, up to Ready; AlreadyExistsError for a taken name.

    It pulls its images from the lab's registry when pods need them.
    """
    if not NAME.fullmatch(name):
        raise errors.InvalidError(
            f"NAME: {name!r} is not a node's name; allowed: lower case letters, digits and dashes",
            reason="NodeNameInvalid",
            field="NAME",
        )
    if name in lab.lab.nodes:
        raise errors.AlreadyExistsError(
            f"NAME: node {name} exists in lab {lab.lab.name} already", reason="NodeExists"
        )
    each = cluster.add_node(lab.lab, name, made_from)
    lab.save()
    with lab.progress.step(f"Booting {name}"):
        _switch_on(lab, each)
    with lab.progress.step(f"Waiting for {name} to be Ready"):
        lab.await_ready(each)
    return each


def remove(lab: Cluster, name: str) -> None:
    """Take a worker node out of the cluster and end it."""
    each = _worker(lab, name)
    with lab.progress.step(f"Removing {name}"):
        lab.api.delete(f"/api/v1/nodes/{name}")
        teardown.end_node(lab.folder, each)
        for other in lab.lab.nodes.values():
            if other is not each:
                network.batch([f"route flush {network.Plan.pods(each.index)}"], inside=other.init)
        del lab.lab.nodes[name]
        lab.save()
        shutil.rmtree(lab.folder.node(name))
        shutil.rmtree(lab.folder.logs / name, ignore_errors=True)


def restart_kubelet(lab: Cluster, name: str) -> None:
    """Stop a node's kubelet and start it again; its containers go on."""
    each = lab.lab.node(name)
    with lab.progress.step(f"Restarting the kubelet of {name}"):
        lab.stop(each, "kubelet")
        since = datetime.datetime.now(datetime.UTC)
        lab.start(each, ["kubelet"])
        lab.await_ready(each, since=since)


def reboot(lab: Cluster, name: str) -> None:
    """Switch a node off without warning and on again, up to Ready."""
    each = lab.lab.node(name)
    with lab.progress.step(f"Rebooting {name}"):
        teardown.end_node(lab.folder, each)
        lab.save()
        since = datetime.datetime.now(datetime.UTC)
        _switch_on(lab, each)
    with lab.progress.step(f"Waiting for {name} to be Ready"):
        lab.await_ready(each, since=since)


def _switch_on(lab: Cluster, each: Node) -> None:
    lab.boot(each)
    if each.name == CONTROL_PLANE:
        lab.reconnect()
        lab.start(each, controlplane.DAEMONS)
    else:
        lab.join(each)
    lab.route()
    lab.prepare(each)
    lab.serve(each)


def _worker(lab: Cluster, name: str) -> Node:
    each = lab.lab.node(name)
    if each.machine is None:
        raise errors.InvalidError(
            f"NODE: {name} runs the control plane and cannot be removed; allowed: "
            f"{', '.join(node.name for node in lab.lab.workers())}",
            reason="ControlPlaneNeeded",
            field="NODE",
        )
    return each
