# SPDX-License-Identifier: Apache-2.0
"""gpudeck is uninstalled in the middle of a change: the node is given back, and a new one works.

A pod that its budget keeps holds each change where the node is out of service.
"""

from __future__ import annotations

from typing import Any

from tests.lab.ampere import chart
from tests.lab.ampere.chart import NAMESPACE, NODE, WHOLE
from tests.support.lab import Lab, Object, pod

MODE, MIG_CONFIG = "gpu.deckhouse.io/mode", "nvidia.com/mig.config"
LEASES = {"gpu-controller", "node-feature-discovery-master"}
CONDITIONS = {"GPUModeActive", "DevicePluginConfigured", "MigConfigured"}
SECONDS = 120.0
BUDGET: Object = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "stays"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "stays"}}},
}


def install(lab: Lab) -> None:
    chart.install(lab, "--set=migManager.enabled=true")
    lab.eventually(
        "cards are offered", lambda: chart.allocatable(lab).get(WHOLE) == 4, seconds=SECONDS
    )


def node(lab: Lab) -> Object:
    found = lab.get("node", NODE)
    assert found is not None
    return found


def taints(lab: Lab) -> set[str]:
    """Ours: the lab's own and the cluster's are others'."""
    found = node(lab)["spec"].get("taints", [])
    return {each["key"] for each in found} & {"gpu.deckhouse.io/mode-change", "mig-reconfigure"}


def trace(lab: Lab) -> dict[str, Any]:
    """What is left of gpudeck on the node."""
    found = node(lab)
    words = ("gpu.deckhouse.io/", "nvidia.com/", "node.deckhouse.io/", "feature.node.kubernetes.io")
    marks = {**found["metadata"]["labels"], **found["metadata"].get("annotations", {})}
    said = {each["type"] for each in found["status"]["conditions"]} & CONDITIONS
    return {
        "marks": sorted(each for each in marks if each.startswith((*words, "nfd.node"))),
        "taints": sorted(taints(lab)),
        "conditions": sorted(said),
    }


def held(lab: Lab) -> None:
    """A pod has a card and may not go."""
    made = pod("stays", limits={WHOLE: 1}, command=("sleep", "36000"))
    made["metadata"]["labels"]["app"] = "stays"
    lab.apply(BUDGET, made)
    lab.running("stays")


def uninstalled(lab: Lab, kept: list[str]) -> None:
    """Uninstall; see that nothing is left but administrators' labels, and that pods run."""
    said = lab.lab("uninstall", "--namespace", NAMESPACE)
    assert 'release "gpudeck" uninstalled' in said
    assert "Nodes that gpudeck had written to: 1 of " in said
    assert trace(lab) == {"marks": kept, "taints": [], "conditions": []}
    assert lab.get("job", "gpudeck-cleanup", NAMESPACE) is None
    assert lab.get("serviceaccount", "gpudeck-cleanup", NAMESPACE) is None
    assert lab.get("clusterrole", "gpudeck:cleanup") is None
    assert not LEASES & {each["metadata"]["name"] for each in lab.list("leases", "-n", NAMESPACE)}
    # Those of groups, too, which the controller has made.
    lab.eventually("all DaemonSets are gone", lambda: not lab.list("daemonsets", "-n", NAMESPACE))
    lab.apply(
        pod("plain", command=("sleep", "36000"), nodeSelector={"kubernetes.io/hostname": NODE})
    )
    lab.running("plain")
    lab.delete("poddisruptionbudget", "stays")
    lab.delete("pod", "plain", "stays")


def test_an_uninstallation_in_the_middle_of_a_change_gives_the_node_back(lab: Lab) -> None:
    install(lab)
    held(lab)
    lab.kubectl("label", "node", NODE, f"{MIG_CONFIG}=all-1g.5gb")
    lab.eventually("partitions change", lambda: "mig-reconfigure" in taints(lab), seconds=SECONDS)
    uninstalled(lab, [MIG_CONFIG])
    lab.kubectl("label", "node", NODE, f"{MIG_CONFIG}-")
    install(lab)
    held(lab)
    lab.kubectl("label", "node", NODE, f"{MODE}=dra")
    lab.eventually(
        "the mode changes", lambda: "gpu.deckhouse.io/mode-change" in taints(lab), seconds=SECONDS
    )
    uninstalled(lab, [MODE])
    lab.kubectl("label", "node", NODE, f"{MODE}-")


def refusing(name: str) -> tuple[Object, Object]:
    """A policy of the cluster that lets the hook change no Node."""
    kind, version = "ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"]}
    policy = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule | {"resources": ["nodes"]}]},
            "validations": [
                {
                    "expression": "!request.userInfo.username.endsWith(':gpudeck-cleanup')",
                    "message": "Nobody cleans here.",
                }
            ],
        },
    }
    binding = {
        "apiVersion": version,
        "kind": f"{kind}Binding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    return policy, binding


def test_an_api_server_that_refuses_is_told_and_the_command_does_the_same_by_hand(
    lab: Lab,
) -> None:
    install(lab)
    lab.apply(*refusing("nobody-cleans"))
    try:
        said = lab.lab("uninstall", "--namespace", NAMESPACE, check=False)
        assert "1 of 2 Nodes are not clean: node-0: " in said
        assert "Nobody cleans here." in said
        assert "failed" in said
        assert lab.get("job", "gpudeck-cleanup", NAMESPACE) is not None
        assert lab.get("clusterrole", "gpudeck:cleanup") is None
    finally:
        lab.delete("validatingadmissionpolicybinding", "nobody-cleans")
        lab.delete("validatingadmissionpolicy", "nobody-cleans")
    options = ("--kubeconfig", lab.kubeconfig, "--namespace", NAMESPACE, "--features")
    lab.eventually(
        "the node is clean",
        lambda: (
            "1 of 2" in lab.gpudeck("cleanup", *options, check=False)
            or trace(lab) == {"marks": [], "taints": [], "conditions": []}
        ),
    )
    assert trace(lab) == {"marks": [], "taints": [], "conditions": []}
    lab.delete("job", "gpudeck-cleanup", namespace=NAMESPACE)
