# SPDX-License-Identifier: Apache-2.0
"""Making a lab: nodes boot, daemons start, the API server answers.

The order is chosen for two cores: everything that only waits (etcd, API server) starts
first, the nodes boot and read their images meanwhile. What each daemon is called with
stands in `controlplane` and `node`; this module only acts.
"""

from __future__ import annotations

import datetime
import json
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gpudeck
from gpudeck import errors
from gpudeck.lab import (
    apiclient,
    cgroups,
    controlplane,
    hardware,
    network,
    node,
    pki,
    processes,
    rootfs,
)
from gpudeck.lab.progress import Progress
from gpudeck.lab.state import CONTROL_PLANE, Folder, Lab, Node
from gpudeck.lab.supplies import Supplies

STEPS = 5
READY_SECONDS = 90.0
_POLL_SECONDS = 0.1


class Cluster:
    """One lab: its folder, its record and its addresses, and the acts on them."""

    def __init__(self, folder: Folder, lab: Lab, progress: Progress) -> None:
        self.folder = folder
        self.lab = lab
        self.progress = progress
        self._saving = threading.Lock()
        self._log_begins: dict[str, int] = {}
        """Where the log of a containerd that was started by us begins, by node."""

    @property
    def plan(self) -> network.Plan:
        """The lab's addresses; the subnet is chosen when the control plane's node boots."""
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

    # -- the whole lab

    def create(self, supplies: Supplies) -> None:
        """Make the lab of this record from nothing, up to every node Ready."""
        nodes = list(self.lab.nodes.values())
        first, workers = nodes[0], nodes[1:]
        with self.progress.step("Control plane's node"):
            controlplane.authorities(self.folder.pki)
            self.boot(first)
            self._connect(first)
            admin = controlplane.administrator(self.folder.pki, self.plan, name=self.lab.name)
            pki.write_private(self.folder.kubeconfig, admin)
            target = self.folder.root(first.name) / "etc/kubernetes"
            controlplane.credentials(self.folder.pki, target, self.plan)
            self.start(first, controlplane.DAEMONS[:2])
        with self.progress.step(f"{len(workers)} nodes and their cards"):
            each_of(workers, self.boot)
            each_of(workers, self.join)
            self.route()
            self.serve_images(supplies.images.layout)
            each_of(nodes, self.prepare)
        with ThreadPoolExecutor(max_workers=1) as importing:
            imported = importing.submit(self.import_everywhere, supplies.images.archive)
            with self.progress.step("API server"):
                self._await("the API server", self.api.ready, daemon=(first, "kube-apiserver"))
                self._grant()
            with self.progress.step(f"{len(nodes)} nodes Ready"):
                self.start(first, controlplane.DAEMONS[2:])
                each_of(nodes, self.serve)
                each_of(nodes, self.await_ready)
                self._await_accounts(first)
            with self.progress.step("Images on every node"):
                imported.result()
        self.lab.phase = "up"
        self.save()

    # -- one node

    def boot(self, each: Node) -> None:
        """Give a node its namespaces and its cards: it is switched on, with nothing running."""
        root = self.folder.root(each.name)
        each.boot_id = str(uuid.uuid4())
        machine_id = uuid.uuid5(uuid.NAMESPACE_URL, str(root)).hex
        programs = rootfs.programs(Path(self.lab.binaries))
        system = rootfs.lay(root, each.name, machine_id, programs=programs)
        home = self.folder.node(each.name)
        (home / "boot_id").write_text(f"{each.boot_id}\n")
        self.folder.simulation(each.name).mkdir(exist_ok=True)
        sources = rootfs.Sources(
            system=system,
            programs=programs,
            boot_id=home / "boot_id",
            simulation=self.folder.simulation(each.name),
        )
        script = home / "boot.sh"
        script.write_text(rootfs.script(root, each.name, sources))
        self.save()
        each.init = processes.boot(
            script, cgroup=f"{self._cgroup(each)}/init", log=self.folder.log(each.name, "boot")
        )
        self.save()
        if each.machine is not None:
            hardware.install(
                self.folder, each, Path(self.lab.artifacts), host_root=self.lab.host_root
            )

    def prepare(self, each: Node) -> None:
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

    def serve(self, each: Node) -> None:
        """Start what makes a node part of the cluster."""
        self.start(each, ["kubelet", "kube-proxy"])

    def start(self, each: Node, names: Iterable[str]) -> None:
        """Start daemons of a node by name."""
        assert each.init is not None
        known = node.commands(each, self.plan) | controlplane.commands(self.plan)
        for name in names:
            if name == "containerd":
                log = self.folder.log(each.name, name)
                self._log_begins[each.name] = log.stat().st_size if log.exists() else 0
            if name == "kubelet":
                # It ends for good when the runtime's socket is there and the runtime is not ready.
                self._await_runtime(each)
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

    def await_ready(self, each: Node, *, since: datetime.datetime | None = None) -> None:
        """Wait until a node is Ready, by a kubelet of its present boot, heard of after `since`."""
        api = self.api
        lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{each.name}"

        def check() -> bool:
            try:
                body = api.get(f"/api/v1/nodes/{each.name}")
                if not node.is_ready(body, each.boot_id):
                    return False
                return since is None or node.renewed(api.get(lease), since)
            except (errors.NotFoundError, errors.UnavailableError):
                return False

        self._await(f"node {each.name}", check, daemon=(each, "kubelet"))
        if patch := node.labels_patch(each):
            api.patch(f"/api/v1/nodes/{each.name}", patch)

    # -- images

    def serve_images(self, layout: Path) -> None:
        """Let the registry serve an image layout; start it unless it runs.

        The lab has its own links to the files: the cache may drop the set while the lab lives.
        """
        link = self.folder.path / "images"
        served = self.folder.path / "layouts" / layout.parent.name
        if not served.exists():
            shutil.copytree(layout, served, copy_function=_link_or_copy)
        fresh = self.folder.path / ".images"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(served)
        fresh.replace(link)
        self.start_registry()

    def start_registry(self) -> None:
        """Start the registry unless it runs; it serves what `serve_images` was given last."""
        link = self.folder.path / "images"
        if processes.alive(self.lab.registry):
            return
        first = self.lab.nodes[CONTROL_PLANE]
        assert first.init is not None
        command = [sys.executable, "-m", "gpudeck.lab.registry", "--layout", str(link)]
        self.lab.registry = processes.start(
            first.init,
            [*command, "--address", self.plan.control_plane, "--port", str(network.REGISTRY_PORT)],
            cgroup=f"{self._cgroup(first)}/registry",
            log=self.folder.log(first.name, "registry"),
            env=processes.environment({"PYTHONPATH": str(Path(gpudeck.__file__).parents[1])}),
            namespaces=("--net", "--pid"),
        )
        self.save()

    def import_everywhere(self, archive: Path) -> None:
        """Load an OCI archive into every node."""
        each_of(list(self.lab.nodes.values()), lambda each: self.import_images(each, archive))

    def import_images(self, each: Node, archive: Path) -> None:
        """Load an OCI archive into a node's containerd, once."""
        assert each.init is not None
        key = str(archive)
        if key in each.images:
            return
        self._await_runtime(each)
        command = ["ctr", "--address", node.RUNTIME, "--namespace", "k8s.io", "images", "import"]
        with archive.open("rb") as content:
            processes.feed([*processes.enter(each.init), *command, "-"], content)
        each.images.append(key)
        self.save()

    # -- network

    def route(self) -> None:
        """Tell every node the way to the others' pods."""
        nodes = list(self.lab.nodes.values())
        for each in [each for each in nodes if processes.alive(each.init)]:
            if commands := network.peer_commands(self.plan, each, nodes):
                network.batch(commands, inside=each.init)

    def _connect(self, first: Node) -> None:
        """Choose the lab's subnet by making the machine's interface, then the bridge."""
        assert first.init is not None
        for subnet in network.candidates(self.folder.digest, network.taken()):
            self.lab.subnet = subnet
            self.save()
            if network.connect(self.plan, self.folder.digest, first.init):
                network.batch(network.bridge_commands(self.plan), inside=first.init)
                return
        raise errors.BusyError(
            "every network 10.89.0.0/24 to 10.89.255.0/24 is in use on this machine",
            reason="NoSubnet",
        )

    def reconnect(self) -> None:
        """Build the network again around a control plane's node that has just booted."""
        first = self.lab.nodes[CONTROL_PLANE]
        assert first.init is not None
        network.disconnect(self.lab.subnet, self.folder.digest)
        if not network.connect(self.plan, self.folder.digest, first.init):
            raise errors.BusyError(
                f"interface {self.plan.host_link} belongs to another lab; make this one anew",
                reason="SubnetTaken",
            )
        network.batch(network.bridge_commands(self.plan), inside=first.init)
        for each in self.lab.workers():
            if each.init is not None and processes.alive(each.init):
                network.unplug(each.init)
                self.join(each)
        self.lab.registry = None
        self.start_registry()

    def join(self, each: Node) -> None:
        """Plug a node into the lab's bridge."""
        first = self.lab.nodes[CONTROL_PLANE].init
        assert first is not None
        assert each.init is not None
        outside, inside = network.node_commands(self.plan, each, each.init)
        network.batch(outside, inside=first)
        network.batch(inside, inside=each.init)

    # -- parts

    def _cgroup(self, each: Node) -> str:
        return f"{self.folder.cgroup}/{each.name}"

    def _grant(self) -> None:
        kind, body = controlplane.kubelet_access()
        self.api.apply(
            f"/apis/rbac.authorization.k8s.io/v1/{kind}/{body['metadata']['name']}", body
        )

    def _await_accounts(self, first: Node) -> None:
        """Pods are refused until the controller manager has made their service account."""
        api = self.api

        def check() -> bool:
            try:
                api.get("/api/v1/namespaces/default/serviceaccounts/default")
            except errors.NotFoundError:
                return False
            return True

        self._await("the service account", check, daemon=(first, "kube-controller-manager"))

    def _await_runtime(self, each: Node) -> None:
        assert each.init is not None
        socket = Path(f"/proc/{each.init.pid}/root{node.RUNTIME}")
        log, begin = self.folder.log(each.name, "containerd"), self._log_begins.get(each.name)

        def check() -> bool:
            # The socket is there before the runtime answers on it.
            return socket.exists() and (
                begin is None or node.RUNTIME_READY in log.read_bytes()[begin:]
            )

        self._await(f"containerd of {each.name}", check, daemon=(each, "containerd"))

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


def _link_or_copy(source: str, target: str) -> str:
    """A hard link where cache and state share a file system, a copy elsewhere."""
    try:
        Path(target).hardlink_to(Path(source).resolve())
    except OSError:
        shutil.copy2(source, target)
    return target


def daemons(each: Node) -> tuple[str, ...]:
    """The daemons that a node ought to run."""
    return (*controlplane.DAEMONS, *node.DAEMONS) if each.machine is None else node.DAEMONS


def each_of(nodes: Sequence[Node], act: Callable[[Node], None]) -> None:
    """Act on all nodes at the same time; the first failure is raised once all are done."""
    with ThreadPoolExecutor(max_workers=max(1, len(nodes))) as pool:
        for done in [pool.submit(act, each) for each in nodes]:
            done.result()


def new_lab(folder: Folder, machines: Sequence[str], supplies: Supplies, *, host_root: str) -> Lab:
    """Describe a lab: the control plane's node, then one node a machine."""
    lab = Lab(
        name=folder.name,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        binaries=str(supplies.binaries),
        artifacts=str(supplies.artifacts),
        host_root=host_root,
        nodes={CONTROL_PLANE: Node(name=CONTROL_PLANE, index=1)},
    )
    for number, machine in enumerate(machines):
        add_node(lab, f"node-{number}", machine)
    return lab


def add_node(lab: Lab, name: str, machine: str) -> Node:
    """Describe one more node; nothing runs yet."""
    found = Node(name=name, index=network.next_index(lab.nodes.values()), machine=machine)
    hardware.describe(found)
    lab.nodes[name] = found
    return found
