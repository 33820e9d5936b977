# SPDX-License-Identifier: Apache-2.0
"""MIG by a node's label, in device plugin mode: the manifests of examples/ on four A100.

What became of the cards is read from the node's resources and from inside of pods.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest
from tests.support.lab import ROOT, Lab, is_ready, pod

pytestmark = pytest.mark.timeout(600)  # A change with its drain takes some ten seconds each way.

NODE, NAMESPACE = "node-0", "kube-system"
EXAMPLE = ROOT / "examples" / "11-mig-config"
CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
SEED = "2x2g.10gb-3x1g.5gb"
WHOLE, SMALL, MIDDLE = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"
MIG = re.compile(r"MIG-[0-9a-f-]{36}")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """`GPUDECK_TEST_LAB=NAME` takes a lab that runs already and leaves it running."""
    given = os.environ.get("GPUDECK_TEST_LAB")
    found = Lab(given or "mig")
    try:
        if not given:
            found.lab("down")
            found.lab("up", "--machine", "a100-40gb-x4", timeout=3000)
        assert found.kubeconfig
        install(found, "mixed")
        found.kubectl("apply", "-f", str(EXAMPLE / "config.yaml"))
        yield found
    finally:
        if not given:
            found.lab("down")


def install(lab: Lab, strategy: str) -> None:
    wanted = (
        "dra.enabled=false",
        f"mig.strategy={strategy}",
        "migManager.config.name=nvidia-mig-config",
    )
    lab.lab("install", "--namespace", NAMESPACE, *(f"--set={each}" for each in wanted))


@pytest.fixture(autouse=True)
def whole(lab: Lab) -> Iterator[None]:
    """Every test begins and ends with whole cards that nobody holds."""
    choose(lab, "disabled")
    offers(lab, {WHOLE: 4})
    yield
    lab.delete("replicaset", "nvidia-test-mig-a100")
    lab.kubectl("delete", "pods", "-l", "test=lab", "--wait=true", "--ignore-not-found")
    choose(lab, "disabled")
    offers(lab, {WHOLE: 4})


def choose(lab: Lab, config: str) -> None:
    lab.kubectl("label", "node", NODE, f"{CONFIG}={config}", "--overwrite")


def node(lab: Lab) -> dict[str, object]:
    found = lab.get("node", NODE)
    assert found is not None
    return found


def offers(lab: Lab, wanted: dict[str, int], *, seconds: float = 120) -> None:
    """Wait until the node offers this and no other resource of its cards, and is in service."""

    def done() -> bool:
        found = lab.get("node", NODE)
        assert found is not None
        amounts = {
            name: int(count)
            for name, count in found["status"]["allocatable"].items()
            if name.startswith("nvidia.com/") and count != "0"
        }
        labels = found["metadata"]["labels"]
        return (
            amounts == wanted
            and labels.get(STATE) == "success"
            and not [each for each in found["spec"].get("taints", []) if "mig" in each["key"]]
            and not found["spec"].get("unschedulable")
            and "paused-for-mig-change" not in labels.values()
        )

    lab.eventually(f"{NODE} offers {wanted}", done, seconds=seconds)


def condition(lab: Lab) -> dict[str, str]:
    found = lab.get("node", NODE)
    assert found is not None
    return next(
        (each for each in found["status"]["conditions"] if each["type"] == "MigConfigured"), {}
    )


def replicas(lab: Lab) -> list[str]:
    """Names of the pods of the ReplicaSet that are ready."""
    found = lab.list("pods", "-l", "app=nvidia-test")
    return [each["metadata"]["name"] for each in found if is_ready(each)]


def inside(lab: Lab, name: str) -> list[str]:
    """UUIDs of the partitions that a pod sees."""
    return MIG.findall(lab.kubectl("exec", name, "--", "nvidia-smi", "-L", check=False))


def test_a_label_partitions_the_cards_and_pods_get_one_partition_each(lab: Lab) -> None:
    choose(lab, SEED)
    offers(lab, {SMALL: 12, MIDDLE: 8})
    lab.kubectl("apply", "-f", str(EXAMPLE / "replicaset.yaml"))
    lab.eventually("four pods of the ReplicaSet run", lambda: len(replicas(lab)) == 4)
    seen = [inside(lab, name) for name in replicas(lab)]
    assert [len(each) for each in seen] == [1] * 4
    assert len({each[0] for each in seen}) == 4
    assert condition(lab)["status"] == "True"


def test_busy_pods_are_drained_before_their_cards_change(lab: Lab) -> None:
    lab.apply(pod("trains", limits={WHOLE: 1}), pod("serves"))
    lab.running("trains", "serves")
    choose(lab, SEED)
    lab.eventually("the pod that holds a card is evicted", lambda: lab.phase("trains") != "Running")
    offers(lab, {SMALL: 12, MIDDLE: 8})
    assert lab.phase("serves") == "Running"


def test_seven_partitions_of_each_card_by_both_strategies(lab: Lab) -> None:
    choose(lab, "7x1g.5gb")
    offers(lab, {SMALL: 28})
    install(lab, "single")
    try:
        offers(lab, {WHOLE: 28})
        lab.apply(pod("part", limits={WHOLE: 1}))
        lab.running("part")
        assert len(inside(lab, "part")) == 1
    finally:
        lab.delete("pod", "part")
        install(lab, "mixed")
    offers(lab, {SMALL: 28})


def test_an_unknown_config_leaves_the_partitions_and_says_which_there_are(lab: Lab) -> None:
    choose(lab, SEED)
    offers(lab, {SMALL: 12, MIDDLE: 8})
    choose(lab, "8x1g.5gb")
    lab.eventually("it is refused", lambda: condition(lab).get("reason") == "NoSuchMigConfig")
    assert "allowed: disabled, 2x2g.10gb-3x1g.5gb, 7x1g.5gb" in condition(lab)["message"]
    found = lab.get("node", NODE)
    assert found is not None
    assert found["metadata"]["labels"][STATE] == "failed"
    assert found["status"]["allocatable"][SMALL] == "12"


def test_a_killed_mig_manager_and_a_rebooted_node_go_on(lab: Lab) -> None:
    choose(lab, SEED)
    lab.eventually(
        "the change has begun",
        lambda: '"phase"' in str(node(lab)["metadata"]),
    )
    lab.kubectl(
        "delete", "pods", "-n", NAMESPACE, "--force", "--grace-period=0",
        "-l", "app.kubernetes.io/component=nvidia-mig-manager",
    )  # fmt: skip
    offers(lab, {SMALL: 12, MIDDLE: 8})
    lab.lab("node", "reboot", NODE)
    offers(lab, {SMALL: 12, MIDDLE: 8}, seconds=180)
