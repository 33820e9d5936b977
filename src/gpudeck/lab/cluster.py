# SPDX-License-Identifier: Apache-2.0
"""Making a lab and changing it: nodes boot, daemons start, the API server answers.

`up` converges: a running lab gets back what died of it, a half-made one is cleared first.
The order is chosen for two cores: everything that only waits (etcd, API server) starts
first, the nodes boot meanwhile. What each daemon is called with stands in `controlplane`
and `node`; this module only acts.
"""

from __future__ import annotations

import datetime
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpudeck import errors
from gpudeck.lab import (
    apiclient,
    cgroups,
    controlplane,
    network,
    node,
    processes,
    rootfs,
    teardown,
)
from gpudeck.lab.progress import Progress
from gpudeck.lab.state import CONTROL_PLANE, Folder, Lab, Node, Process

READY_SECONDS = 90.0
_POLL_SECONDS = 0.1


class Cluster:
    """One lab: its folder, its record and its addresses, and the acts on them."""

    def __init__(self, folder: Folder, lab: Lab, progress: Progress) -> None:
        self.folder = folder
        self.lab = lab
        self.progress = progress
        self._saving = threading.Lock()

    @property
    def plan(self) -> network.Plan:
        """The lab's addresses; the subnet is chosen when the first node boots."""
        assert self.lab.subnet is not None
        return network.Plan(self.lab.subnet)

    @property
    def api(self) -> apiclient.ApiClient:
        """A new connection to the API server: one a thread."""
        return apiclient.ApiClient(self.folder.kubeconfig)

    def save(self) -> None:
        """Write the record; nodes boot in threads of their own."""
        with self._saving:
            self.folder.save(self.lab)

    # -- the whole ---------------------------------------------------------------------

    def create(self, images: Sequence[Path]) -> None:
        """Make the lab of this record from nothing, up to every node Ready."""
        nodes = list(self.lab.nodes.values())
        first, workers = nodes[0], nodes[1:]
        with self.progress.step("Booting the control plane's node"):
            controlplane.authorities(self.folder.pki)
            self.boot(first)
            self._connect(first)
            admin = controlplane.administrator(self.folder.pki, self.plan, name=self.lab.name)
            self.folder.kubeconfig.touch(mode=0o600)
            self.folder.kubeconfig.write_bytes(admin)
            target = self.folder.root(first.name) / "etc/kubernetes"
            controlplane.credentials(self.folder.pki, target, self.plan)
            self.start(first, controlplane.DAEMONS[:2])
        with self.progress.step(f"Booting {len(workers)} nodes"):
            self._each(workers, self.boot)
            self._each(workers, self._join)
            self._route()
            self._each(nodes, self._prepare)
        with self.progress.step("Waiting for the API server"):
            self._await("the API server", self.api.ready, daemon=(first, "kube-apiserver"))
            self._grant()
        with self.progress.step(f"Waiting for {len(nodes)} nodes to be Ready"):
            self.start(first, controlplane.DAEMONS[2:])
            self._each(nodes, self._serve)
            self._each(nodes, self.await_ready)
        with self.progress.step("Importing images"):
            self._each(nodes, lambda each: self.import_images(each, images))
        self.lab.phase = "up"
        self.save()

    def repair(self) -> list[str]:
        """Start again what died of a running lab; return `daemon:node` of each."""
        revived = []
        for each in self.lab.nodes.values():
            wanted = node.DAEMONS
            if each.name == CONTROL_PLANE:
                wanted = (*controlplane.DAEMONS, *wanted)
            dead = [name for name in wanted if not processes.alive(each.daemons.get(name))]
            self.start(each, dead)
            revived += [f"{name}:{each.name}" for name in dead]
        return revived

    # -- one node ----------------------------------------------------------------------

    def boot(self, each: Node) -> None:
        """Give a node its namespaces: it is switched on, with nothing running."""
        root = self.folder.root(each.name)
        each.boot_id = str(uuid.uuid4())
        machine_id = uuid.uuid5(uuid.NAMESPACE_URL, str(root)).hex
        programs = rootfs.programs(Path(self.lab.binaries))
        system = rootfs.lay(root, each.name, machine_id, programs=programs)
        home = self.folder.node(each.name)
        (home / "boot_id").write_text(f"{each.boot_id}\n")
        (home / "simulation").mkdir(exist_ok=True)
        sources = rootfs.Sources(
            system=system,
            programs=programs,
            boot_id=home / "boot_id",
            simulation=home / "simulation",
        )
        script = home / "boot.sh"
        script.write_text(rootfs.script(root, each.name, sources))
        self.save()
        each.init = processes.boot(
            script,
            cgroup=f"{self._cgroup(each)}/init",
            log=self.folder.log(each.name, "boot"),
        )
        self.save()

    def start(self, each: Node, names: Iterable[str]) -> None:
        """Start daemons of a node by name."""
        assert each.init is not None
        known = node.commands(each, self.plan) | controlplane.commands(self.plan)
        for name in names:
            each.daemons[name] = processes.start(
                each.init,
                known[name],
                cgroup=f"{self._cgroup(each)}/{name}",
                log=self.folder.log(each.name, name),
                env=processes.environment(),
            )
            self.save()

    def stop(self, each: Node, name: str) -> None:
        """Stop a daemon of a node; its containers go on."""
        processes.stop(each.daemons.pop(name, None))
        self.save()

    def await_ready(self, each: Node) -> None:
        """Wait until the node is Ready by a heartbeat of its present kubelet."""
        api = self.api

        def check() -> bool:
            try:
                return node.is_ready(api.get(f"/api/v1/nodes/{each.name}"))
            except (errors.NotFoundError, errors.UnavailableError):
                return False

        self._await(f"node {each.name}", check, daemon=(each, "kubelet"))
        if patch := node.labels_patch(each):
            api.patch(f"/api/v1/nodes/{each.name}", patch)

    def import_images(self, each: Node, archives: Sequence[Path]) -> None:
        """Load OCI archives into a node's containerd, once each."""
        assert each.init is not None
        for archive in archives:
            key = f"{archive.name}:{archive.stat().st_size}:{archive.stat().st_mtime_ns}"
            if key in each.images:
                continue
            command = ["ctr", "--address", node.RUNTIME, "--namespace", "k8s.io"]
            with archive.open("rb") as content:
                processes.feed(
                    [*processes.enter(each.init), *command, "images", "import", "-"], content
                )
            each.images.append(key)
            self.save()

    # -- parts -------------------------------------------------------------------------

    def _cgroup(self, each: Node) -> str:
        return f"{self.folder.cgroup}/{each.name}"

    def _connect(self, first: Node) -> None:
        """Choose the lab's subnet by making the machine's interface, then the bridge."""
        assert first.init is not None
        for subnet in network.candidates(self.folder.digest, network.taken()):
            self.lab.subnet = subnet
            self.save()
            if network.connect(self.plan, self.folder.digest, first.init):
                bridge = [
                    *network.bridge_commands(self.plan),
                    f"link set machine master {network.BRIDGE}",
                    "link set machine up",
                ]
                network.batch(bridge, inside=first.init)
                return
        raise errors.BusyError(
            "every network 10.89.0.0/24 to 10.89.255.0/24 is in use on this machine",
            reason="NoSubnet",
        )

    def _join(self, each: Node) -> None:
        first = self.lab.nodes[CONTROL_PLANE].init
        assert first is not None and each.init is not None
        outside, inside = network.node_commands(self.plan, each, each.init)
        network.batch(outside, inside=first)
        network.batch(inside, inside=each.init)

    def _route(self) -> None:
        nodes = list(self.lab.nodes.values())
        for each in nodes:
            if commands := network.peer_commands(self.plan, each, nodes):
                network.batch(commands, inside=each.init)

    def _prepare(self, each: Node) -> None:
        """Write a node's configuration and start its container runtime."""
        assert each.init is not None
        root = self.folder.root(each.name)
        cgroup = f"{self._cgroup(each)}/pods"
        cgroups.create(cgroup)
        node.configure(root, each, self.plan, pki_folder=self.folder.pki, cgroup=cgroup)
        spec = json.loads(processes.inside(each.init, ["ctr", "oci", "spec"]))
        target = root / node.BASE_SPEC[1:]
        target.write_text(json.dumps(node.base_runtime_spec(spec), indent=1))
        self.start(each, ["containerd"])

    def _serve(self, each: Node) -> None:
        self.start(each, ["kubelet", "kube-proxy"])

    def _grant(self) -> None:
        """Let the API server call kubelets, as kubeadm does."""
        path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/"
        name = "lab:kube-apiserver-kubelet-client"
        body = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:kubelet-api-admin",
            },
            "subjects": [
                {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "User",
                    "name": "kube-apiserver-kubelet-client",
                }
            ],
        }
        self.api.apply(path + name, body)

    def _each(self, nodes: Sequence[Node], act: Callable[[Node], None]) -> None:
        """Act on all nodes at the same time; the first failure is raised once all are done."""
        with ThreadPoolExecutor(max_workers=max(1, len(nodes))) as pool:
            for done in [pool.submit(act, each) for each in nodes]:
                done.result()

    def _await(self, what: str, check: Callable[[], bool], *, daemon: tuple[Node, str]) -> None:
        each, name = daemon
        deadline = time.monotonic() + READY_SECONDS
        while not check():
            log = self.folder.log(each.name, name)
            if not processes.alive(each.daemons.get(name)):
                raise errors.UnavailableError(
                    f"{name} of {each.name} ended: {processes.last_lines(log)} (all of it: {log})",
                    reason="DaemonEnded",
                )
            if time.monotonic() > deadline:
                raise errors.UnavailableError(
                    f"{what} is not ready after {READY_SECONDS:.0f} s: "
                    f"{processes.last_lines(log)} (all of it: {log})",
                    reason="NotReady",
                )
            time.sleep(_POLL_SECONDS)


def new_lab(folder: Folder, machines: Sequence[str], binaries: Path) -> Lab:
    """Describe a lab: the control plane's node, then one node a machine."""
    lab = Lab(
        name=folder.name,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        binaries=str(binaries),
        nodes={CONTROL_PLANE: Node(name=CONTROL_PLANE, index=1)},
    )
    for number, machine in enumerate(machines):
        name = f"node-{number}"
        index = network.next_index(lab.nodes.values())
        lab.nodes[name] = Node(name=name, index=index, machine=machine)
    return lab


def up(
    folder: Folder, machines: Sequence[str], *, binaries: Path, images: Sequence[Path],
    progress: Progress,
) -> tuple[Lab, bool]:  # fmt: skip
    """Bring a lab up; return it and whether it was made now."""
    with folder.locked():
        lab = folder.load()
        if lab is not None and teardown.is_running(lab):
            cluster = Cluster(folder, lab, progress)
            for revived in cluster.repair():
                progress.note(f"started again: {revived}")
            return lab, False
        if folder.path.exists():
            with progress.step("Clearing what is left of the last run"):
                teardown.clear(folder)
        lab = new_lab(folder, machines, binaries)
        folder.save(lab)
        Cluster(folder, lab, progress).create(images)
        return lab, True


def init_of(lab: Lab, name: str) -> Process:
    """The first process of a running node; UnavailableError says how to get it back."""
    found = lab.node(name)
    if found.init is None or not processes.alive(found.init):
        raise errors.UnavailableError(
            f"node {name} of lab {lab.name} does not run; start it with: "
            f"gpudeck lab node reboot {name}",
            reason="NodeDown",
        )
    return found.init
