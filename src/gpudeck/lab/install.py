# SPDX-License-Identifier: Apache-2.0
"""Installing the chart, into a lab or into any cluster that a kubeconfig leads to, and back.

Helm does the work, as for any user; this module adds what a lab knows: its image, its host
root, and how many nodes must run an adapter before the installation is whole. CRDs are
applied first because Helm never changes one that exists.
"""

from __future__ import annotations

import collections
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpudeck import errors
from gpudeck.api import conditions, labels
from gpudeck.lab import hardware, places, processes
from gpudeck.lab.progress import Progress
from gpudeck.lab.state import Lab

RELEASE = "gpudeck"
NAMESPACE = "gpudeck-system"
ADAPTERS = {"nvidia": "nvidia-adapter"}
PLUGINS = {"nvidia": "nvidia-device-plugin"}
"""The same in device plugin mode, where each group of nodes has a DaemonSet of its own."""
COMPONENT = "app.kubernetes.io/component"
ROLLOUT_SECONDS = 180.0
UNINSTALL_SECONDS = 100.0
QUIET_SECONDS = 5.0
"""An installation that waits says so often what nodes wait for."""
STEPS = 3
_POLL_SECONDS = 0.5
_OURS = f"app.kubernetes.io/instance={RELEASE}"
_SAID_OF_NODES = (
    "Ready", conditions.MODE_ACTIVE, conditions.PLUGIN_CONFIGURED, conditions.MIG_CONFIGURED,
    conditions.NODE_GROUP_FOLLOWED,
)  # fmt: skip


class Target:
    """A cluster to install into, and the programs that speak to it."""

    def __init__(self, kubeconfig: Path, binaries: Path, namespace: str = NAMESPACE) -> None:
        self.namespace = namespace
        self._environment = processes.environment(
            {"PATH": f"{binaries}:{processes.NODE_PATH}", "KUBECONFIG": str(kubeconfig)}
        )

    def run(self, *words: str) -> str:
        """Run kubectl or helm against the cluster and return its output."""
        return processes.run(words, env=self._environment)

    def list(self, kinds: str, selector: str = "") -> list[dict[str, Any]]:
        """List objects of the release's namespace, or of the cluster."""
        words = ["kubectl", "--namespace", self.namespace, "get", kinds, "--output=json"]
        if selector:
            words.append(f"--selector={selector}")
        items: list[dict[str, Any]] = json.loads(self.run(*words))["items"]
        return items


def lab_values(lab: Lab, product: str) -> list[str]:
    """The chart values that fit a lab: its image by reference, its host root."""
    repository, _, tag = product.rpartition(":")
    return [
        f"image.repository={repository}",
        f"image.tag={tag}",
        f"hostRoot={lab.host_root}",
        "nvidiaMps.enabled=true",
    ]


def install(
    target: Target,
    progress: Progress,
    *,
    values: Sequence[str] = (),
    files: Sequence[Path] = (),
    expected: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Install or upgrade the chart and wait until it runs; return its workloads.

    `values` are Helm's --set words and `files` of values, the last one wins, words over files;
    `expected` are the makers of nodes whose cards must be offered before the wait is over, by
    the name of the node, each in the mode that the node is to have.
    """
    chart = places.repository() / "charts" / "gpudeck"
    with progress.step("Custom resource definitions"):
        target.run(
            "kubectl", "apply", "--server-side", "--force-conflicts", f"--filename={chart}/crds"
        )
    with progress.step("Helm release gpudeck"):
        _namespace(target)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as ours:
            ours.write("dra: {enabled: true}\n")
            ours.flush()
            options = [f"--values={file}" for file in (ours.name, *files)]
            options += [f"{flag(value)}={value}" for value in values]
            target.run(
                "helm", "upgrade", RELEASE, str(chart), "--install", "--skip-crds",
                f"--namespace={target.namespace}", *options,
            )  # fmt: skip
        default = labels.MODE_DRA if _dra_is_enabled(target) else labels.MODE_DEVICE_PLUGIN
    with progress.step("Pods of gpudeck ready"):
        return await_pods(target, progress, pods_of(expected or {}, _chosen(target), default))


def uninstall(target: Target, progress: Progress) -> str:
    """Uninstall the release as any user does, and return what Helm said; CRDs stay."""
    with progress.step("Helm release gpudeck"):
        # What its hook says comes on the error stream.
        merged = ("sh", "-c", 'exec "$@" 2>&1', "helm")
        options = (f"--namespace={target.namespace}", f"--timeout={UNINSTALL_SECONDS:.0f}s")
        return target.run(*merged, "helm", "uninstall", RELEASE, *options)


def flag(value: str) -> str:
    """The option of Helm for a --set word: a tag of digits alone is no number."""
    return "--set-string" if value.startswith("image.tag=") else "--set"


def pods_of(
    makers: Mapping[str, str], chosen: Mapping[str, str], default: str
) -> Mapping[str, int]:
    """How many pods of each workload nodes call for, by their makers and chosen modes."""
    names = {labels.MODE_DRA: ADAPTERS, labels.MODE_DEVICE_PLUGIN: PLUGINS}
    return collections.Counter(
        names.get(chosen.get(node, default), names[default])[maker]
        for node, maker in makers.items()
    )


def _chosen(target: Target) -> dict[str, str]:
    """The modes that administrators have chosen, by node."""
    return {
        each["metadata"]["name"]: mode
        for each in target.list("nodes")
        if (mode := each["metadata"].get("labels", {}).get(labels.MODE)) is not None
    }


def _dra_is_enabled(target: Target) -> bool:
    text = target.run(
        "helm",
        "get",
        "values",
        RELEASE,
        "--all",
        "--output=json",
        f"--namespace={target.namespace}",
    )
    return bool(json.loads(text)["dra"]["enabled"])


def _namespace(target: Target) -> None:
    """Make the namespace if need be, with the label that Pod Security wants for the adapter."""
    found = ("kubectl", "get", "namespace", target.namespace, "--ignore-not-found", "--output=name")
    if not target.run(*found).strip():
        target.run("kubectl", "create", "namespace", target.namespace)
        label = "pod-security.kubernetes.io/enforce=privileged"
        target.run("kubectl", "label", "namespace", target.namespace, label)


def makers_of(lab: Lab) -> dict[str, str]:
    """The makers of cards that gpudeck hands out, by name of a lab's node that has some."""
    makers = {node.name: hardware.describe(node).maker for node in lab.workers()}
    return {name: maker for name, maker in makers.items() if maker in ADAPTERS}


def await_pods(
    target: Target, progress: Progress, expected: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Wait until all workloads run and `expected` pods of each component; say what is waited for.

    Raises UnavailableError, with the same, after `ROLLOUT_SECONDS`.
    """
    begin = looked = time.monotonic()
    told: set[str] = set()
    while True:
        workloads = target.list("deployments,daemonsets", _OURS)
        missing = unready(workloads, expected)
        if not missing:
            return workloads
        progress.detail(", ".join(missing))
        now = time.monotonic()
        if now > begin + ROLLOUT_SECONDS:
            raise _late(target, missing)
        if now > looked + QUIET_SECONDS:
            looked = now
            waits = what_nodes_wait_for(target.list("nodes"))
            for each in waits:
                if each not in told:
                    progress.note(f"      {each}")
            told.update(waits)
        time.sleep(_POLL_SECONDS)


def _late(target: Target, missing: Sequence[str]) -> errors.UnavailableError:
    pods = target.list("pods", _OURS)
    of_pods = "; ".join([*waiting_reasons(pods), *_last_words(target, pods)])
    reasons = " ".join([*what_nodes_wait_for(target.list("nodes")), of_pods]).strip()
    return errors.UnavailableError(
        f"not ready after {ROLLOUT_SECONDS:.0f} s: {', '.join(missing)}. {reasons}",
        reason="RolloutTimeout",
    )


def _last_words(target: Target, pods: Sequence[Mapping[str, Any]]) -> list[str]:
    """The last line that each crashed container wrote."""
    said = []
    for pod in pods:
        for container in pod.get("status", {}).get("containerStatuses", []):
            if container.get("lastState", {}).get("terminated"):
                name = f"{pod['metadata']['name']}/{container['name']}"
                text = target.run(
                    "kubectl", "--namespace", target.namespace, "logs", "--previous", "--tail=1",
                    pod["metadata"]["name"], "--container", container["name"],
                )  # fmt: skip
                said.append(f"{name} ended with: {text.strip()}")
    return said


def unready(workloads: Sequence[Mapping[str, Any]], expected: Mapping[str, int]) -> list[str]:
    """Say for each workload that is not rolled out how far it is: `name 1/2`.

    `expected` is how many pods each component must have, perhaps of several workloads.
    """
    said = {}
    total = dict.fromkeys(expected, 0)
    for workload in workloads:
        name, labels = workload["metadata"]["name"], workload["metadata"].get("labels", {})
        ready, wanted, current = counts(workload)
        component = labels.get(COMPONENT)
        if component in total:
            total[component] += ready
        if not current or ready < wanted:
            said[name] = f"{name} {ready}/{wanted}"
    for component, ready in total.items():
        if ready < expected[component]:
            said.setdefault(component, f"{component} {ready}/{expected[component]}")
    return list(said.values())


def counts(workload: Mapping[str, Any]) -> tuple[int, int, bool]:
    """Ready pods of the newest revision, wanted pods, and whether the status is of today's spec."""
    status = workload.get("status", {})
    current = status.get("observedGeneration", 0) >= workload["metadata"]["generation"]
    if workload["kind"] == "DaemonSet":
        wanted = status.get("desiredNumberScheduled", 0)
        ready = status.get("numberReady", 0)
        # Pods of OnDelete (MPS daemons) are of the old revision until their pods have ended.
        if workload.get("spec", {}).get("updateStrategy", {}).get("type") != "OnDelete":
            ready = min(ready, status.get("updatedNumberScheduled", 0))
    else:
        wanted = workload["spec"].get("replicas", 1)
        ready = min(status.get("readyReplicas", 0), status.get("updatedReplicas", 0))
    return ready, wanted, current


def what_nodes_wait_for(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say what each condition that is not True says, behind the name of its Node."""
    return [
        f"{node['metadata']['name']}: {each.get('message') or each['type']}"
        for node in nodes
        for each in node.get("status", {}).get("conditions", [])
        if each["type"] in _SAID_OF_NODES and each["status"] != conditions.TRUE
    ]


def waiting_reasons(pods: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say why each container that does not run waits."""
    said = []
    for pod in pods:
        status = pod.get("status", {})
        for container in status.get("containerStatuses", []):
            for state in ("waiting", "terminated"):
                found = container.get("state", {}).get(state)
                if found:
                    reason = f"{found.get('reason', state)} {found.get('message', '')}".strip()
                    said.append(f"{pod['metadata']['name']}/{container['name']}: {reason}")
        if not status.get("containerStatuses"):
            said += [
                f"{pod['metadata']['name']}: {condition.get('message', condition['type'])}"
                for condition in status.get("conditions", [])
                if condition["status"] != "True"
            ][:1]
    return said
