# SPDX-License-Identifier: Apache-2.0
"""MIG by a node's label: the manifests of examples/ on four A100.

What became of the cards is read from the node's resources and from inside of pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.lab.ampere.chart import NAMESPACE, NODE, PARTITIONS, WHOLE, allocatable, install
from tests.support.lab import Lab, Object, is_ready, pod
from tests.support.systemctl import Systemctl

from gpudeck.lab import hardware, machine, state

pytestmark = pytest.mark.timeout(600)  # A change with its drain takes some ten seconds each way.

OTHER = "node-1"
CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
SEED = "2x2g.10gb-3x1g.5gb"
SMALL, MIDDLE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"
IDLE = ("sleep", "36000")
"""What runs without a card."""
MIG = re.compile(r"MIG-[0-9a-f-]{36}")


@pytest.fixture(scope="module", autouse=True)
def whole(lab: Lab) -> Iterator[None]:
    """The node has whole cards again afterwards, and no choice."""
    yield
    having(lab, "disabled", {WHOLE: 4})
    lab.kubectl("label", "node", NODE, f"{CONFIG}-")


@pytest.fixture(autouse=True)
def idle(lab: Lab) -> Iterator[None]:
    """Nobody holds a card after a test. Each takes the partitions as the one before left them."""
    yield
    lab.delete("replicaset", "nvidia-test-mig-a100")
    lab.kubectl("delete", "pods", "-l", "test=lab", "--wait=true", "--ignore-not-found")


def choose(lab: Lab, config: str, *, node: str = NODE) -> None:
    lab.kubectl("label", "node", node, f"{CONFIG}={config}", "--overwrite")


def having(lab: Lab, config: str, wanted: dict[str, int], *, seconds: float = 120) -> None:
    """Choose a config, and wait until the node offers what is wanted by it."""
    choose(lab, config)
    offers(lab, wanted, seconds=seconds)


def object_of(lab: Lab, node: str = NODE) -> Object:
    found = lab.get("node", node)
    assert found is not None
    return found


def offers(lab: Lab, wanted: dict[str, int], *, node: str = NODE, seconds: float = 120) -> None:
    """Wait until the node offers this and no other resource of its cards, and is in service."""

    def done() -> bool:
        found = object_of(lab, node)
        labels = found["metadata"]["labels"]
        return (
            {name: count for name, count in allocatable(lab, node).items() if count} == wanted
            and labels.get(STATE) == "success"
            and not [each for each in found["spec"].get("taints", []) if "mig" in each["key"]]
            and not found["spec"].get("unschedulable")
            and "paused-for-mig-change" not in labels.values()
        )

    lab.eventually(f"{node} offers {wanted}", done, seconds=seconds)


def condition(lab: Lab, *, node: str = NODE) -> dict[str, str]:
    said = object_of(lab, node)["status"]["conditions"]
    return next((each for each in said if each["type"] == "MigConfigured"), {})


def replicas(lab: Lab) -> list[str]:
    """Names of the pods of the ReplicaSet that are ready."""
    found = lab.list("pods", "-l", "app=nvidia-test")
    return [each["metadata"]["name"] for each in found if is_ready(each)]


def inside(lab: Lab, name: str) -> list[str]:
    """UUIDs of the partitions that a pod sees."""
    return MIG.findall(lab.kubectl("exec", name, "--", "nvidia-smi", "-L", check=False))


def is_gone(lab: Lab, name: str) -> bool:
    return lab.phase(name) != "Running"


def test_busy_pods_are_drained_before_their_cards_change(lab: Lab) -> None:
    having(lab, "disabled", {WHOLE: 4})
    first = pod("first", limits={WHOLE: 1}, command=["true"])["spec"]["containers"]
    lab.apply(
        pod("trains", limits={WHOLE: 1}),
        pod("prepared", command=IDLE, initContainers=[{**first[0], "name": "first"}]),
        pod("serves"),
    )
    lab.running("trains", "prepared", "serves")
    choose(lab, SEED)
    for each in ("trains", "prepared"):
        lab.eventually(f"{each}, which has a card, is evicted", lambda: is_gone(lab, each))  # noqa: B023
    offers(lab, {SMALL: 12, MIDDLE: 8})
    assert lab.phase("serves") == "Running"


def test_a_label_partitions_the_cards_and_pods_get_one_partition_each(lab: Lab) -> None:
    having(lab, SEED, {SMALL: 12, MIDDLE: 8})
    lab.kubectl("apply", "-f", str(PARTITIONS / "replicaset.yaml"))
    lab.eventually("four pods of the ReplicaSet run", lambda: len(replicas(lab)) == 4)
    seen = [inside(lab, name) for name in replicas(lab)]
    assert [len(each) for each in seen] == [1] * 4
    assert len({each[0] for each in seen}) == 4
    assert condition(lab)["status"] == "True"


def test_an_unknown_config_leaves_the_partitions_and_says_which_there_are(lab: Lab) -> None:
    having(lab, SEED, {SMALL: 12, MIDDLE: 8})
    choose(lab, "8x1g.5gb")
    lab.eventually("it is refused", lambda: condition(lab).get("reason") == "NoSuchMigConfig")
    assert "allowed: disabled, 2x2g.10gb-3x1g.5gb, 7x1g.5gb" in condition(lab)["message"]
    assert object_of(lab)["metadata"]["labels"][STATE] == "failed"
    assert allocatable(lab)[SMALL] == 12


def test_a_killed_mig_manager_and_a_rebooted_node_go_on(lab: Lab) -> None:
    having(lab, SEED, {SMALL: 12, MIDDLE: 8})
    choose(lab, "7x1g.5gb")
    lab.eventually("the change has begun", lambda: '"phase"' in str(object_of(lab)["metadata"]))
    lab.kubectl(
        "delete", "pods", "-n", NAMESPACE, "--force", "--grace-period=0",
        "-l", "app.kubernetes.io/component=nvidia-mig-manager",
    )  # fmt: skip
    offers(lab, {SMALL: 28})
    lab.lab("node", "reboot", NODE)
    offers(lab, {SMALL: 28}, seconds=180)


def test_seven_partitions_of_each_card_by_both_strategies(lab: Lab) -> None:
    having(lab, "7x1g.5gb", {SMALL: 28})
    install(lab, "--set=mig.strategy=single")
    try:
        offers(lab, {WHOLE: 28})
        lab.apply(pod("part", limits={WHOLE: 1}))
        lab.running("part")
        assert len(inside(lab, "part")) == 1
    finally:
        lab.delete("pod", "part")
        install(lab)
    offers(lab, {SMALL: 28})


@pytest.fixture
def stubborn(lab: Lab, tmp_path: Path) -> Iterator[Systemctl]:
    """Another node, with two A30 whose MIG mode waits for a reset, which the second one refuses.

    Its init system is a stand-in, which only notes what it is told.
    """
    found = yaml.safe_load((machine.FOLDER / "a30-x2.yaml").read_text())
    model = yaml.safe_load((machine.FOLDER / "models/a30.yaml").read_text())
    model["mig"]["mode_change"] = "pending"
    path = tmp_path / "a30-x2.yaml"
    path.write_text(yaml.safe_dump({**found, "models": {"a30": model}}))
    lab.lab("node", "add", OTHER, "--machine", str(path))
    try:
        lab.lab("gpu", OTHER, "1", "fail", "999", "--function", "simReset")
        init = state.running(state.folder(lab.name)).node(OTHER).init
        assert init is not None
        yield Systemctl(hardware.tree(init))
    finally:
        lab.lab("node", "remove", OTHER)


def deployment(name: str) -> dict[str, object]:
    """One replica without a card on the other node, which comes back by itself."""
    made = pod(name, command=IDLE, nodeSelector={"kubernetes.io/hostname": OTHER})
    made["metadata"]["labels"]["app"] = name
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": {"test": "lab"}},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": made["metadata"]["labels"]}, "spec": made["spec"]},
        },
    }


def runs(lab: Lab, name: str) -> bool:
    return [is_ready(each) for each in lab.list("pods", "-l", f"app={name}")] == [True]


BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "guarded"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
}


def test_a_node_is_emptied_and_rebooted_where_a_card_needs_it(
    lab: Lab, stubborn: Systemctl
) -> None:
    names = ("serves", "guarded")
    lab.apply(*map(deployment, names), BUDGET)
    try:
        choose(lab, "disabled", node=OTHER)
        offers(lab, {WHOLE: 2}, node=OTHER)
        lab.eventually("both run", lambda: all(runs(lab, each) for each in names))
        choose(lab, "all-2g.12gb", node=OTHER)
        lab.eventually(
            "the budget keeps a pod and so the node",
            lambda: (
                "The disruption budget guarded" in condition(lab, node=OTHER).get("message", "")
            ),
        )
        lab.eventually("the other pod is evicted", lambda: not runs(lab, "serves"))
        assert condition(lab, node=OTHER)["reason"] == "Emptying"
        assert runs(lab, "guarded")
        assert "reboot" not in stubborn.told
        lab.delete("poddisruptionbudget", "guarded")
        lab.eventually("the node is told to reboot", lambda: "reboot" in stubborn.told)
        assert not runs(lab, "guarded")
        lab.lab("node", "reboot", OTHER)
        offers(lab, {"nvidia.com/mig-2g.12gb": 4}, node=OTHER, seconds=180)
        lab.eventually("both are back", lambda: all(runs(lab, each) for each in names))
    finally:
        lab.delete("poddisruptionbudget", "guarded")
        # With its pods, while their node is there to end them.
        lab.kubectl("delete", "deployment", *names, "--cascade=foreground", "--ignore-not-found")
