# SPDX-License-Identifier: Apache-2.0
"""A node's configuration files and the command lines of its daemons.

containerd, the kubelet and kube-proxy run on every node, the control plane included. The
values that differ from Kubernetes' defaults each have their reason here; most come from a
machine that has cgroup v1 and no CAP_SYS_RESOURCE.
`configure` writes into the node's root; everything else is pure. `cluster` starts what
this module describes.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from gpudeck.lab import network, pki, rootfs
from gpudeck.lab.state import CONTROL_PLANE, Node

PAUSE = "registry.lab/pause:3.10"
RUNTIME = "/run/containerd/containerd.sock"
RUNTIME_READY = b"containerd successfully booted"
"""What containerd 2.4 writes when it serves."""
FOLDER = "/etc/kubernetes"
BASE_SPEC = "/etc/containerd/base-runtime-spec.json"
IN_CONTAINERS = "/run/gpudeck-simulation"
CONTROL_PLANE_ROLE = "node-role.kubernetes.io/control-plane"
DAEMONS = ("containerd", "kubelet", "kube-proxy")
# Registries whose images the lab's own registry serves, by the name that nodes ask for.
MIRRORED = ("docker.io", "ghcr.io", "nvcr.io", "quay.io", "registry.k8s.io", "registry.lab")


def configure(root: Path, node: Node, plan: network.Plan, *, pki_folder: Path, cgroup: str) -> None:
    """Write the files below a node's root that its daemons read."""
    credentials(pki_folder, root / FOLDER[1:], node, plan)
    files: dict[str, str] = {
        "etc/containerd/config.toml": containerd_config(),
        "etc/cni/net.d/10-lab.conflist": json.dumps(cni(plan.pods(node.index)), indent=1),
        "etc/kubernetes/kubelet.yaml": yaml.safe_dump(kubelet_config(node, cgroup)),
        "etc/kubernetes/kube-proxy.yaml": yaml.safe_dump(proxy_config(node)),
    }
    for registry in MIRRORED:
        files[f"etc/containerd/certs.d/{registry}/hosts.toml"] = mirror(registry, plan)
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


def credentials(folder: Path, target: Path, node: Node, plan: network.Plan) -> None:
    """Issue the kubelet's two certificates and kube-proxy's one."""
    cluster = pki.read(folder, "ca")
    target.mkdir(parents=True, exist_ok=True)
    pki.write_public(target / "ca.crt", cluster.certificate_pem)
    user = f"system:node:{node.name}"
    client = pki.issue(cluster, user, organizations=["system:nodes"])
    text = pki.kubeconfig(plan.server, cluster, client, name="kubelet")
    pki.write_private(target / "kubelet.conf", text)
    address = plan.address(node.index)
    serving = pki.issue(
        cluster, user, organizations=["system:nodes"], hosts=[node.name, address, "127.0.0.1"]
    )
    serving.write(target, "kubelet")
    client = pki.issue(cluster, "system:kube-proxy")
    text = pki.kubeconfig(plan.server, cluster, client, name="kube-proxy")
    pki.write_private(target / "kube-proxy.conf", text)


def commands(node: Node, plan: network.Plan) -> dict[str, list[str]]:
    """The command line of each daemon of a node, by its name."""
    return {
        "containerd": ["containerd", "--config=/etc/containerd/config.toml", "--log-level=info"],
        "kubelet": [
            "kubelet",
            f"--config={FOLDER}/kubelet.yaml",
            f"--kubeconfig={FOLDER}/kubelet.conf",
            f"--hostname-override={node.name}",
            f"--node-ip={plan.address(node.index)}",
            "--root-dir=/var/lib/kubelet",
            "--cert-dir=/var/lib/kubelet/pki",
        ],
        "kube-proxy": ["kube-proxy", f"--config={FOLDER}/kube-proxy.yaml"],
    }


def containerd_config() -> str:
    """containerd's configuration, format version 3.

    restrict_oom_score_adj: without CAP_SYS_RESOURCE runc may not lower the score.
    """
    return f"""version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
address = "{RUNTIME}"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"

[plugins."io.containerd.cri.v1.images".registry]
config_path = "/etc/containerd/certs.d"

[plugins."io.containerd.cri.v1.runtime"]
enable_cdi = true
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{rootfs.BINARIES}"]
conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = "{BASE_SPEC}"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{rootfs.BINARIES}/runc"
SystemdCgroup = false
"""


def base_runtime_spec(default: Mapping[str, Any]) -> dict[str, Any]:
    """containerd's default OCI spec with the mount that lets the driver's stand-in find its cards.

    This stands for the kernel driver, which every container reaches by the device nodes it
    has; the product's own edits know nothing of it.
    """
    mount = {
        "destination": IN_CONTAINERS,
        "type": "bind",
        "source": rootfs.SIMULATION,
        "options": ["rbind", "rw"],
    }
    return {**default, "mounts": [*default.get("mounts", []), mount]}


def cni(subnet: str) -> dict[str, Any]:
    """Pods on a bridge of their node, with host ports."""
    return {
        "cniVersion": "1.0.0",
        "name": "lab",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "pods0",
                "isGateway": True,
                "hairpinMode": True,
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni",
                    "ranges": [[{"subnet": subnet}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet_config(node: Node, cgroup: str) -> dict[str, Any]:
    """The kubelet's configuration: honest authentication, lenient about the machine."""
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "x509": {"clientCAFile": f"{FOLDER}/ca.crt"},
            "webhook": {"enabled": True},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{FOLDER}/kubelet.crt",
        "tlsPrivateKeyFile": f"{FOLDER}/kubelet.key",
        "containerRuntimeEndpoint": f"unix://{RUNTIME}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        # Without CAP_SYS_RESOURCE a process may not lower its score, as the default would.
        "oomScoreAdj": 0,
        # The machine's disk belongs to others too: evict late, collect no images.
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "clusterDNS": [network.DNS_SERVICE],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        # Devices appear in the Node's allocatable at this pace; ten seconds by default.
        "nodeStatusUpdateFrequency": "1s",
        # Tests kill processes by the dozen; a real node waits up to five minutes between starts.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
        # A refused NodePrepareResources is tried again at this pace (kubelet 1.37); a minute by
        # default.
        "syncFrequency": "5s",
        "serializeImagePulls": False,
        "registryPullQPS": 0,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "enableProfilingHandler": False,
    }
    if node.name == CONTROL_PLANE:
        config["registerWithTaints"] = [{"key": CONTROL_PLANE_ROLE, "effect": "NoSchedule"}]
    return config


def proxy_config(node: Node) -> dict[str, Any]:
    """kube-proxy's configuration: nftables; the machine's connection tracking stays as it is."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": node.name,
        "clientConnection": {"kubeconfig": f"{FOLDER}/kube-proxy.conf"},
        "clusterCIDR": "10.244.0.0/16",
        "oomScoreAdj": 0,
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }


def mirror(registry: str, plan: network.Plan) -> str:
    """hosts.toml of a registry: ask the lab's own, and nobody else."""
    address = f"http://{plan.control_plane}:{network.REGISTRY_PORT}"
    return f"""server = "{address}"

[host."{address}"]
capabilities = ["pull", "resolve"]
override_path = false
"""


def labels_patch(node: Node) -> dict[str, Any]:
    """Labels that a kubelet may not give its own Node (NodeRestriction)."""
    if node.name != CONTROL_PLANE:
        return {}
    return {"metadata": {"labels": {CONTROL_PLANE_ROLE: ""}}}


def is_ready(body: Mapping[str, Any], boot_id: str) -> bool:
    """Whether a Node object says Ready, from a kubelet of that boot."""
    status = body.get("status", {})
    conditions: Iterable[Mapping[str, Any]] = status.get("conditions", [])
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and status.get("nodeInfo", {}).get("bootID") == boot_id


def renewed(lease: Mapping[str, Any], since: datetime.datetime) -> bool:
    """Whether a node's Lease was renewed after `since`: only a kubelet that runs does that."""
    return datetime.datetime.fromisoformat(lease["spec"]["renewTime"]) > since
