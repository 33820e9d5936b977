# SPDX-License-Identifier: Apache-2.0
"""The command lines of etcd, the API server, the controller manager and the scheduler.

They run on the node `control-plane`, where /etc/kubernetes holds what `credentials` wrote.
Pure but for `credentials`; `cluster` starts what this module describes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpudeck.lab import network, pki
from gpudeck.lab.state import CONTROL_PLANE

FOLDER = "/etc/kubernetes"
ETCD = "https://127.0.0.1:2379"
ISSUER = "https://kubernetes.default.svc.cluster.local"
# In the order in which they are started.
DAEMONS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def authorities(folder: Path) -> None:
    """Make the lab's authorities and the key pair of its service accounts."""
    for name, common_name in (
        ("ca", "kubernetes"),
        ("etcd-ca", "etcd"),
        ("front-proxy-ca", "front-proxy"),
    ):
        pki.authority(common_name).write(folder, name)
    pki.token_keys(folder)


def credentials(folder: Path, target: Path, plan: network.Plan) -> None:
    """Issue what the control plane's processes need and put it into `target`."""
    cluster, etcd, proxy = (pki.read(folder, name) for name in ("ca", "etcd-ca", "front-proxy-ca"))
    for name, pair in (("ca", cluster), ("etcd-ca", etcd), ("front-proxy-ca", proxy)):
        target.mkdir(parents=True, exist_ok=True)
        pki.write_public(target / f"{name}.crt", pair.certificate_pem)
    cluster.write(target, "ca")
    for name in ("sa.key", "sa.pub"):
        pki.write_private(target / name, (folder / name).read_bytes())
    local = ("localhost", "127.0.0.1")
    pki.issue(etcd, "etcd", hosts=local).write(target, "etcd")
    pki.issue(etcd, "kube-apiserver").write(target, "apiserver-etcd")
    pki.issue(proxy, "front-proxy-client").write(target, "front-proxy-client")
    # `kubelet_access` binds this user to the role that it needs.
    pki.issue(cluster, "kube-apiserver-kubelet-client").write(target, "apiserver-kubelet")
    service = ["kubernetes", "default", "svc", "cluster", "local"]
    names = [".".join(service[:count]) for count in (1, 2, 3, 5)]
    hosts = (*names, *local, network.API_SERVICE, plan.control_plane, CONTROL_PLANE)
    pki.issue(cluster, "kube-apiserver", hosts=hosts).write(target, "apiserver")
    for name in ("kube-controller-manager", "kube-scheduler"):
        client = pki.issue(cluster, f"system:{name}")
        text = pki.kubeconfig(plan.server, cluster, client, name=name)
        pki.write_private(target / f"{name}.conf", text)


def administrator(folder: Path, plan: network.Plan, *, name: str) -> bytes:
    """The user's kubeconfig: the one member of system:masters."""
    cluster = pki.read(folder, "ca")
    client = pki.issue(cluster, "gpudeck-lab-admin", organizations=["system:masters"])
    return pki.kubeconfig(plan.server, cluster, client, name=name)


def kubelet_access() -> tuple[str, dict[str, Any]]:
    """Kind and body of the binding that lets the API server call kubelets, as kubeadm has it."""
    group = "rbac.authorization.k8s.io"
    user = "kube-apiserver-kubelet-client"
    return "clusterrolebindings", {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"lab:{user}"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


def commands(plan: network.Plan) -> dict[str, list[str]]:
    """The command line of each daemon, by its name."""
    return {
        "etcd": etcd(),
        "kube-apiserver": apiserver(plan),
        "kube-controller-manager": controller_manager(),
        "kube-scheduler": [
            "kube-scheduler",
            f"--kubeconfig={FOLDER}/kube-scheduler.conf",
            f"--authentication-kubeconfig={FOLDER}/kube-scheduler.conf",
            f"--authorization-kubeconfig={FOLDER}/kube-scheduler.conf",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        ],
    }


def etcd() -> list[str]:
    """etcd on loopback, with certificates: pods of the host's network reach loopback too.

    It never waits for the disk: a lab that loses power is made again.
    """
    return [
        "etcd",
        "--name=lab",
        "--data-dir=/var/lib/etcd",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=lab=http://127.0.0.1:2380",
        "--client-cert-auth=true",
        f"--trusted-ca-file={FOLDER}/etcd-ca.crt",
        f"--cert-file={FOLDER}/etcd.crt",
        f"--key-file={FOLDER}/etcd.key",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(plan: network.Plan) -> list[str]:
    """The API server with the Node authorizer, RBAC, NodeRestriction and aggregation."""
    return [
        "kube-apiserver",
        f"--etcd-servers={ETCD}",
        f"--etcd-cafile={FOLDER}/etcd-ca.crt",
        f"--etcd-certfile={FOLDER}/apiserver-etcd.crt",
        f"--etcd-keyfile={FOLDER}/apiserver-etcd.key",
        f"--secure-port={network.API_PORT}",
        f"--advertise-address={plan.control_plane}",
        f"--service-cluster-ip-range={network.SERVICES}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={FOLDER}/ca.crt",
        f"--tls-cert-file={FOLDER}/apiserver.crt",
        f"--tls-private-key-file={FOLDER}/apiserver.key",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={FOLDER}/sa.pub",
        f"--service-account-signing-key-file={FOLDER}/sa.key",
        f"--kubelet-certificate-authority={FOLDER}/ca.crt",
        f"--kubelet-client-certificate={FOLDER}/apiserver-kubelet.crt",
        f"--kubelet-client-key={FOLDER}/apiserver-kubelet.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={FOLDER}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={FOLDER}/front-proxy-client.crt",
        f"--proxy-client-key-file={FOLDER}/front-proxy-client.key",
        "--endpoint-reconciler-type=lease",
        "--profiling=false",
    ]


def controller_manager() -> list[str]:
    """The controller manager; it signs certificate requests with the cluster's authority."""
    return [
        "kube-controller-manager",
        f"--kubeconfig={FOLDER}/kube-controller-manager.conf",
        f"--authentication-kubeconfig={FOLDER}/kube-controller-manager.conf",
        f"--authorization-kubeconfig={FOLDER}/kube-controller-manager.conf",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={FOLDER}/sa.key",
        f"--root-ca-file={FOLDER}/ca.crt",
        f"--cluster-signing-cert-file={FOLDER}/ca.crt",
        f"--cluster-signing-key-file={FOLDER}/ca.key",
        f"--requestheader-client-ca-file={FOLDER}/front-proxy-ca.crt",
        "--profiling=false",
    ]
