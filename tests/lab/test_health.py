# SPDX-License-Identifier: Apache-2.0
"""A card falls ill or is taken out of use: who hears of it, who avoids it, who stays."""

from __future__ import annotations

import pytest
from tests.support.lab import NAMESPACE, Lab, Object, is_ready, pod

REASONS = ("CardUnhealthy", "CardRecovered")


def card_of(lab: Lab, name: str) -> str:
    """The PhysicalGPU that a pod holds."""
    for card, gpu in lab.gpus().items():
        for claim in gpu["status"].get("occupancy", {}).get("claims", []):
            if name in claim.get("pods", []):
                return card
    return ""


def told(lab: Lab, name: str) -> list[Object]:
    """The Events about the cards of the pod that has this name now."""
    found = lab.get("pod", name)
    uid = found["metadata"]["uid"] if found else ""
    events = lab.list("events", "--field-selector", f"involvedObject.uid={uid}")
    return [each for each in events if each["reason"] in REASONS]


def recovered(lab: Lab, name: str) -> list[Object]:
    """Those of them that say that a card is well again."""
    return [each for each in told(lab, name) if each["reason"] == "CardRecovered"]


def index_of(lab: Lab, card: str) -> tuple[str, str]:
    """Node and index of a card, as `lab gpu` and NODE/INDEX count."""
    gpus = lab.gpus()
    node = gpus[card]["status"]["nodeInfo"]["nodeName"]
    addresses = sorted(
        each["status"]["pciInfo"]["address"]
        for each in gpus.values()
        if each["status"]["nodeInfo"]["nodeName"] == node
    )
    return node, str(addresses.index(gpus[card]["status"]["pciInfo"]["address"]))


@pytest.fixture
def holders(lab: Lab) -> tuple[str, str]:
    """Two pods with a whole card each."""
    lab.apply(pod("sick", limits={"nvidia.com/gpu": 1}), pod("well", limits={"nvidia.com/gpu": 1}))
    lab.running("sick", "well")
    lab.eventually("both hold a card", lambda: card_of(lab, "sick") and card_of(lab, "well"))
    return card_of(lab, "sick"), card_of(lab, "well")


def test_a_lost_card_is_told_at_its_pod_within_ten_seconds(
    lab: Lab, holders: tuple[str, str]
) -> None:
    sick, _ = holders
    node, index = index_of(lab, sick)
    lab.lab("gpu", node, index, "lose", "--unplug")
    try:
        lab.eventually("the pod's Event", lambda: told(lab, "sick"), seconds=10)
        event = told(lab, "sick")[0]
        assert (event["type"], event["reason"]) == ("Warning", "CardUnhealthy")
        assert sick in event["message"]
        assert lab.gpus()[sick]["status"]["currentState"]["uuid"] in event["message"]
        assert f"on node {node}" in event["message"]
        assert told(lab, "well") == []
        assert lab.phase("well") == "Running"
    finally:
        lab.lab("gpu", node, index, "return")
    event = lab.eventually("recovery is told", lambda: recovered(lab, "sick"), seconds=120)[0]
    assert event["type"] == "Normal"
    assert told(lab, "well") == []


def test_a_reset_ends_a_hardware_error_that_outlived_the_adapter(lab: Lab) -> None:
    card = next(iter(lab.gpus()))
    node, index = index_of(lab, card)
    lab.lab("gpu", node, index, "xid", "79")
    lab.eventually("the card is Faulty", lambda: health_of(lab, card) == "False", seconds=10)
    restart_adapter(lab, node)
    assert health_of(lab, card) == "False"
    assert "Xid 79" in condition_of(lab, card)["message"], "what the driver asks for now is less"
    lab.lab("shell", node, "--", "nvidia-smi", "--gpu-reset", "-i", index)
    lab.eventually("the card is well", lambda: health_of(lab, card) == "True", seconds=40)


def restart_adapter(lab: Lab, node: str) -> None:
    """Have another adapter read the node's cards."""
    chosen = ("-n", NAMESPACE, "-l", "app.kubernetes.io/component=nvidia-adapter")
    on_node = (*chosen, "--field-selector", f"spec.nodeName={node}")
    (before,) = lab.list("pods", *on_node)
    lab.delete("pod", before["metadata"]["name"], namespace=NAMESPACE)

    def has_judged() -> bool:
        found = [each for each in lab.list("pods", *on_node) if is_ready(each)]
        where = ("-n", NAMESPACE, "-c", "nvidia-adapter")
        return any("Health card=" in lab.kubectl("logs", each["metadata"]["name"], *where)
                   for each in found)  # fmt: skip

    lab.eventually("another adapter has judged its cards", has_judged)


def condition_of(lab: Lab, card: str) -> Object:
    """The condition HardwareHealthy of a card."""
    found = lab.gpus()[card]["status"]["conditions"]
    return next(each for each in found if each["type"] == "HardwareHealthy")


def health_of(lab: Lab, card: str) -> str:
    """The status of the condition HardwareHealthy of a card."""
    return str(condition_of(lab, card)["status"])


def test_an_xid_of_an_application_is_told_to_nobody(lab: Lab, holders: tuple[str, str]) -> None:
    sick, well = holders
    lab.lab("gpu", *index_of(lab, sick), "xid", "13")
    # What comes after it is told, so it has been looked at by then.
    lab.lab("gpu", *index_of(lab, well), "lose", "--unplug")
    try:
        lab.eventually("the other pod's Event", lambda: told(lab, "well"), seconds=10)
        assert told(lab, "sick") == []
    finally:
        lab.lab("gpu", *index_of(lab, well), "return")
    lab.eventually("recovery is told", lambda: recovered(lab, "well"), seconds=120)


def test_a_cordoned_card_keeps_its_pod_and_gets_no_other(
    lab: Lab, holders: tuple[str, str]
) -> None:
    held, other = holders
    where = ("--kubeconfig", lab.kubeconfig)
    every = list(lab.gpus())
    for card in every:
        lab.gpudeck("cordon", card, "--reason", "tested", *where)
    try:
        lab.apply(pod("waits", limits={"nvidia.com/gpu": 1}))
        said = lab.eventually(
            "explain says that cards are cordoned",
            lambda: "cordoned" in (text := lab.gpudeck("explain", "pod", "waits", *where)) and text,
        )
        assert "10 cards" in said or "are cordoned" in said
        assert (lab.phase("sick"), lab.phase("well")) == ("Running", "Running")
        lab.eventually("each Node says so", lambda: cordoned_nodes(lab) == {"node-0", "node-1"})
        free = next(card for card in every if card not in (held, other))
        lab.gpudeck("uncordon", "/".join(index_of(lab, free)), *where)
        lab.running("waits")
        assert card_of(lab, "waits") == free
        lab.gpudeck("cordon", held, "--evict", *where)
        lab.eventually("the pod is ended", lambda: lab.phase("sick") in ("Gone", "Failed"))
        assert lab.phase("well") == "Running"
    finally:
        for card in every:
            lab.gpudeck("uncordon", card, *where)
    assert lab.list("devicetaintrules") == []
    lab.eventually("no Node says so", lambda: not cordoned_nodes(lab))


def cordoned_nodes(lab: Lab) -> set[str]:
    """The nodes whose condition GPUModeActive tells that all their cards are cordoned, and why."""
    return {
        each["metadata"]["name"]
        for each in lab.list("nodes")
        for said in each["status"]["conditions"]
        if (said["type"], said["reason"]) == ("GPUModeActive", "NothingOffered")
        and "It is cordoned: tested." in said["message"]
    }
