# SPDX-License-Identifier: Apache-2.0
"""What every rendering of the chart must keep: privileges, tokens, settings and labels.

Read from the golden files, so these rules are held without Helm too.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.chart import rendering

from gpudeck import settings
from gpudeck.api import attributes, labels
from gpudeck.controller.modes import deciding
from gpudeck.controller.nodegroups import workloads as templates
from gpudeck.features import configuring
from gpudeck.mig import configs, defaults

Manifest = dict[str, Any]
OBJECTS = [(variant, each) for variant in rendering.VARIANTS for each in rendering.golden(variant)]
LIBRARY_AND_TOKEN = ("nvidia-device-plugin-ctr", "gpu-feature-discovery-ctr", "nvidia-mig-manager")
"""Containers whose process speaks to the API server and has the maker's library in a child; their
tokens write what is of their own node alone."""
PROCESSES = {
    "controller": "gpudeck.controller.settings",
    "node-agent": "gpudeck.agent.settings",
    "dra-plugin": "gpudeck.dra.settings",
    "adapter": "gpudeck.adapter.settings",
    "device-plugin": "gpudeck.deviceplugin.settings",
    "gfd": "gpudeck.gfd.settings",
    "mps-control": "gpudeck.vendors.nvidia.mps.settings",
    "features": "gpudeck.features.settings",
    "mig-manager": "gpudeck.repartitioning.settings",
}


def workloads() -> Iterator[tuple[str, Manifest]]:
    for variant, each in OBJECTS:
        if each["kind"] in ("Deployment", "DaemonSet", "Job"):
            yield f"{variant}/{each['metadata']['name']}", each
        if each["metadata"]["name"] == labels.NODE_WORKLOADS:
            for name, template in templates.read(each["data"]).items():
                yield f"{variant}/{name}", template


def containers() -> list[Any]:
    return [
        pytest.param(workload, container, id=f"{name}/{container['name']}")
        for name, workload in workloads()
        for container in workload["spec"]["template"]["spec"]["containers"]
    ]


def mounts_a_token(workload: Manifest, container: Manifest) -> bool:
    pod = workload["spec"]["template"]["spec"]
    projected = {
        volume["name"]
        for volume in pod.get("volumes", [])
        for source in volume.get("projected", {}).get("sources", [])
        if "serviceAccountToken" in source
    }
    mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
    return bool(pod["automountServiceAccountToken"]) or bool(projected & mounted)


@pytest.mark.parametrize(("workload", "container"), containers())
def test_no_container_has_both_privileges_and_a_token(
    workload: Manifest, container: Manifest
) -> None:
    if container["name"] in LIBRARY_AND_TOKEN:
        return
    privileged = container["securityContext"].get("privileged", False)
    assert privileged is not mounts_a_token(workload, container)


@pytest.mark.parametrize(("workload", "container"), containers())
def test_a_container_without_privileges_has_none_to_gain(
    workload: Manifest, container: Manifest
) -> None:
    rights = container["securityContext"]
    assert rights["readOnlyRootFilesystem"] is True
    if not rights.get("privileged"):
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(("workload", "container"), containers())
def test_every_variable_is_a_setting_of_its_process(
    workload: Manifest, container: Manifest
) -> None:
    process = container["command"][1]
    if process not in PROCESSES:
        assert "env" not in container  # A command for people, told by its flags.
        return
    module = importlib.import_module(PROCESSES[process])
    options = settings.describe(module.Settings)
    known = {name for option in options for name in (option.env, *option.also)}
    given = {variable["name"] for variable in container["env"]}
    assert given - {"PYTHONOPTIMIZE"} <= known  # That one is Python's own.


@pytest.mark.parametrize(("workload", "container"), containers())
def test_every_container_says_what_memory_it_needs(workload: Manifest, container: Manifest) -> None:
    assert container["resources"]["requests"]


@pytest.mark.parametrize(("variant", "each"), OBJECTS)
def test_no_role_has_a_wildcard_or_reads_secrets_but_the_one_of_the_webhooks(
    variant: str, each: Manifest
) -> None:
    for rule in each.get("rules", []):
        words = [word for values in rule.values() for word in values]
        assert not [word for word in words if "*" in word]
        if "secrets" in rule.get("resources", []):
            assert each["kind"] == "Role"
            assert rule["resourceNames"] == ["gpu-controller-webhook"]
        assert rule["verbs"]


def test_the_controller_never_writes_claims_and_the_adapter_their_status_alone() -> None:
    for _, each in OBJECTS:
        for rule in each.get("rules", []):
            found = set(rule.get("resources", []))
            if "resourceclaims" in found:
                assert set(rule["verbs"]) <= {"get", "list", "watch"}
            if {"resourceclaims/status", "resourceclaims/driver"} & found:
                assert each["metadata"]["name"] == "gpudeck:nvidia-adapter"
                assert set(rule["verbs"]) <= {"patch", "associated-node:patch"}


def test_what_cleans_at_the_end_is_put_on_no_node_that_is_down() -> None:
    """It would wait there until Helm says that the uninstallation failed."""
    jobs = [each for _, each in workloads() if each["kind"] == "Job"]
    assert jobs
    for job in jobs:
        tolerated = job["spec"]["template"]["spec"]["tolerations"]
        assert all("key" in each for each in tolerated)
        keys = {each["key"] for each in tolerated}
        assert keys >= {labels.MODE_CHANGE, labels.MIG_TAINT, "node.kubernetes.io/unschedulable"}
        assert keys.isdisjoint({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


def test_every_account_serves_one_workload() -> None:
    for variant in rendering.VARIANTS:
        used = [
            workload["spec"]["template"]["spec"]["serviceAccountName"]
            for name, workload in workloads()
            if name.startswith(variant)
        ]
        accounts = {
            each["metadata"]["name"]
            for found, each in OBJECTS
            if found == variant and each["kind"] == "ServiceAccount"
        }
        assert len(used) == len(set(used))
        assert set(used) == accounts


def test_names_that_programs_know_are_those_of_the_code() -> None:
    for _, each in OBJECTS:
        if each["metadata"]["name"] == labels.NODE_WORKLOADS:
            assert set(templates.read(each["data"])) == set(templates.TEMPLATES)
        elif each["metadata"]["name"] == "default-mig-parted-config":
            found = configs.read(each["data"][configs.KEY])
            assert found.by_name == defaults.all_models()
        elif each["kind"] == "ConfigMap" and "vendors.yaml" in each["data"]:
            assert each["metadata"]["name"] == labels.SUPPORTED_VENDORS
            document = yaml.safe_load(each["data"]["vendors.yaml"])
            assert set(document) == {"vendors", "classes"}
        if each["metadata"]["name"] == "nvidia-adapter" and each["kind"] == "DaemonSet":
            pod = each["spec"]["template"]["spec"]
            assert pod["nodeSelector"][labels.VENDOR] == "nvidia"
            paths = {
                volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]
            }
            assert paths["plugin"].endswith(f"/plugins/{attributes.DOMAIN}")


def test_every_workload_of_a_mode_is_for_makers_that_the_controller_takes_for_served() -> None:
    """A node of another maker would wait for ever for the pods of its mode."""
    makers = set()
    for _, each in workloads():
        chosen = each["spec"]["template"]["spec"].get("nodeSelector", {})
        if labels.ACTIVE_MODE in chosen:
            makers.add((chosen[labels.ACTIVE_MODE], chosen[labels.VENDOR]))
    assert makers == {(mode, maker) for mode in labels.MODES for maker in deciding.SERVED}


def test_both_modes_have_the_same_workloads() -> None:
    """A node may have the other mode by its label."""
    found = [
        {each["metadata"]["name"] for each in rendering.golden(variant) if "spec" in each}
        for variant in ("default", "dra")
    ]
    assert found[0] <= found[1]
    assert {"nvidia-adapter", "gpu-controller", "gpu-node-agent"} <= found[0]


def test_the_files_of_node_features_are_read_without_a_word_against_them() -> None:
    readers = {"nfd-worker.conf": configuring.worker, "nfd-master.conf": configuring.master}
    for variant in rendering.VARIANTS:
        files = {
            name: text
            for found, each in OBJECTS
            if found == variant and each["kind"] == "ConfigMap"
            for name, text in each["data"].items()
        }
        for name, read in readers.items():
            assert read(files[name]).settings
            assert read(files[name]).notes == []


def test_the_host_is_read_below_its_root() -> None:
    for each in rendering.golden("full"):
        if each["kind"] == "DaemonSet":
            for volume in each["spec"]["template"]["spec"]["volumes"]:
                path = volume.get("hostPath", {}).get("path")
                if path is not None:
                    kubelet = ("/data/kubelet", "/var/log/pods")
                    assert path.startswith(("/mnt/host", *kubelet, "/run/cdi", "/run/containerd"))
