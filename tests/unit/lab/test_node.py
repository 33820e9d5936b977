# SPDX-License-Identifier: Apache-2.0
"""A node's configuration: what its daemons read, and what its Node object says of it."""

from __future__ import annotations

import datetime
import json
import tomllib
from pathlib import Path

import pytest
import yaml

from gpudeck.lab import controlplane, network, node
from gpudeck.lab.state import CONTROL_PLANE, Node

PLAN = network.Plan(51)
WORKER = Node(name="node-0", index=2, machine="t4-x4")


def test_containerd_reads_its_configuration_and_honours_cdi() -> None:
    config = tomllib.loads(node.containerd_config())
    runtime = config["plugins"]["io.containerd.cri.v1.runtime"]
    assert config["version"] == 3
    assert runtime["enable_cdi"] is True
    assert runtime["cdi_spec_dirs"] == ["/etc/cdi", "/var/run/cdi"]
    assert runtime["containerd"]["runtimes"]["runc"]["base_runtime_spec"] == node.BASE_SPEC


def test_every_container_has_the_simulation_and_nothing_else_of_ours() -> None:
    default = {"process": {"cwd": "/"}, "mounts": [{"destination": "/proc"}]}
    spec = node.base_runtime_spec(default)
    assert spec["process"] == {"cwd": "/"}
    assert [mount["destination"] for mount in spec["mounts"]] == [
        "/proc",
        "/run/gpudeck-simulation",
    ]
    assert default["mounts"] == [{"destination": "/proc"}]


def test_only_the_control_plane_registers_with_a_taint() -> None:
    control = node.kubelet_config(Node(name=CONTROL_PLANE, index=1), "gpudeck/lab/x/pods")
    assert control["registerWithTaints"] == [
        {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    ]
    worker = node.kubelet_config(WORKER, "gpudeck/lab/y/pods")
    assert "registerWithTaints" not in worker
    assert worker["cgroupRoot"] == "/gpudeck/lab/y/pods"
    assert worker["authentication"]["anonymous"] == {"enabled": False}


def test_the_role_is_a_label_that_the_lab_gives() -> None:
    assert node.labels_patch(WORKER) == {}
    assert node.labels_patch(Node(name=CONTROL_PLANE, index=1)) == {
        "metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}
    }


def test_every_registry_is_the_labs_own() -> None:
    hosts = tomllib.loads(node.mirror("docker.io", PLAN))
    assert hosts["server"] == "http://10.89.51.1:5000"
    assert list(hosts["host"]) == ["http://10.89.51.1:5000"]


def test_a_configured_node_has_all_files_and_no_authoritys_key(tmp_path: Path) -> None:
    controlplane.authorities(tmp_path / "pki")
    root = tmp_path / "root"
    node.configure(root, WORKER, PLAN, pki_folder=tmp_path / "pki", cgroup="gpudeck/a/b")
    kubelet = yaml.safe_load((root / "etc/kubernetes/kubelet.yaml").read_text())
    assert kubelet["kind"] == "KubeletConfiguration"
    cni = json.loads((root / "etc/cni/net.d/10-lab.conflist").read_text())
    assert cni["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.244.2.0/24"}]]
    assert (root / "etc/containerd/certs.d/nvcr.io/hosts.toml").is_file()
    assert not list(root.rglob("ca.key"))


@pytest.mark.parametrize(
    ("status", "boot_id", "ready"),
    [("True", "now", True), ("False", "now", False), ("True", "before the reboot", False)],
)
def test_ready_counts_only_from_the_present_boot(status: str, boot_id: str, ready: bool) -> None:
    body = {
        "status": {
            "conditions": [{"type": "Ready", "status": status}],
            "nodeInfo": {"bootID": boot_id},
        }
    }
    assert node.is_ready(body, "now") is ready
    assert node.is_ready({}, "now") is False


def test_a_lease_of_before_a_restart_is_no_sign_of_life() -> None:
    lease = {"spec": {"renewTime": "2026-01-02T03:04:05.000006Z"}}
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    assert node.renewed(lease, moment)
    assert not node.renewed(lease, moment + datetime.timedelta(seconds=1))
