# SPDX-License-Identifier: Apache-2.0
"""MIG mode of cards that need a reset for it: an administrator's label, and what becomes of it.

What became of the cards is read from the simulated driver's own state, not from gpudeck.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab.test_parts import asking, migs_inside, part_class, resource
from tests.support.lab import Lab, Object, gpu_class, pod

from gpudeck.lab import hardware, state

ANY = "any-nine"
LABEL = "gpu.deckhouse.io/mig-mode"
NODE = "node-1"
"""The one with four A100: their mode changes by a reset."""
WHOLE, PART = "a100", "part-5gb"


@pytest.fixture
def ampere(lab: Lab) -> Iterator[Lab]:
    """The lab with classes for whole A100 and for their smallest partitions; no mode is chosen."""
    lab.apply(gpu_class(WHOLE, products=["*A100*"]), part_class(PART, "1g.5gb"))
    yield lab
    lab.kubectl("delete", "pods", "-l", "test=lab", "--wait=true", "--ignore-not-found")
    choose(lab, "disabled")
    lab.eventually("MIG is off on every card", lambda: not any(modes(lab)), seconds=120)
    lab.kubectl("label", "node", NODE, f"{LABEL}-")
    lab.kubectl("delete", "gpuclasses", WHOLE, PART)


def choose(lab: Lab, value: str) -> None:
    lab.kubectl("label", "--overwrite", "node", NODE, f"{LABEL}={value}")


def modes(lab: Lab) -> list[bool]:
    """Whether MIG is on, for each card of the node, as its driver knows it."""
    folder = state.folder(lab.name)
    found = state.running(folder)
    shown = hardware.simulated(folder, found.node(NODE), Path(found.artifacts)).show()
    return [bool(card["state"]["mig-mode"]) for card in shown["cards"]]


def said(lab: Lab) -> list[tuple[str, str]]:
    """Reason and message of PartitioningApplied of the node's cards, where it is there."""
    return [
        (each["reason"], each["message"])
        for name, gpu in sorted(lab.gpus().items())
        if name.startswith(f"{NODE}-")
        for each in gpu["status"]["conditions"]
        if each["type"] == "PartitioningApplied"
    ]


def reasons(lab: Lab) -> list[str]:
    return sorted(reason for reason, _ in said(lab))


def test_the_mode_of_the_label_comes_to_idle_cards_at_once_and_to_a_busy_one_later(
    ampere: Lab,
) -> None:
    assert modes(ampere) == [False] * 4
    ampere.apply(asking("busy", resource(WHOLE)))
    ampere.running("busy")
    before = ampere.cards_inside("busy")
    choose(ampere, "enabled")
    ampere.eventually("three cards have MIG", lambda: sum(modes(ampere)) == 3, seconds=120)
    wanted = ["Applied", "Applied", "Applied", "WaitingForClaims"]
    ampere.eventually("the busy card says so", lambda: reasons(ampere) == wanted)
    (waiting,) = [text for reason, text in said(ampere) if reason == "WaitingForClaims"]
    assert "claim default/" in waiting
    assert ampere.cards_inside("busy") == before

    ampere.apply(asking("part", resource(PART)))
    ampere.running("part")
    assert len(migs_inside(ampere, "part")) == 1

    ampere.delete("pod", "busy")
    ampere.eventually("the last card has MIG", lambda: all(modes(ampere)), seconds=120)
    ampere.eventually("all say so", lambda: reasons(ampere) == ["Applied"] * 4)

    choose(ampere, "disabled")
    ampere.eventually("three cards are whole", lambda: sum(modes(ampere)) == 1, seconds=120)
    assert len(migs_inside(ampere, "part")) == 1
    ampere.delete("pod", "part")
    ampere.eventually("all cards are whole", lambda: not any(modes(ampere)), seconds=120)
    names = [f"whole-{index}" for index in range(4)]
    ampere.apply(*(asking(name, resource(WHOLE)) for name in names))
    ampere.running(*names)
    assert len({uuid for name in names for uuid in ampere.cards_inside(name)}) == 4


def test_a_process_of_the_node_itself_is_named_and_the_card_stays_in_use(ampere: Lab) -> None:
    ampere.lab("gpu", NODE, "0", "busy", "--pid", "4242")
    choose(ampere, "enabled")
    ampere.eventually("three cards have MIG", lambda: sum(modes(ampere)) == 3, seconds=120)
    ampere.eventually("the fourth says why not", lambda: "SwitchFailed" in reasons(ampere))
    (failed,) = [text for reason, text in said(ampere) if reason == "SwitchFailed"]
    assert "PID 4242" in failed
    ampere.apply(asking("meanwhile", resource(WHOLE)))
    ampere.running("meanwhile")
    ampere.delete("pod", "meanwhile")
    ampere.lab("gpu", NODE, "0", "idle")
    ampere.eventually("the fourth follows", lambda: all(modes(ampere)), seconds=180)


def test_one_class_serves_partitions_and_shares_of_three_models(ampere: Lab) -> None:
    spec = {"devices": ["Partition", "Share"], "partition": {"memory": {"min": "9G"}}}
    ampere.apply({**gpu_class(ANY), "spec": spec}, template(ANY, "9G"))
    ampere.lab("node", "add", "node-2", "--machine", "a30-x2")
    try:
        choose(ampere, "enabled")
        ampere.eventually("MIG is on on every A100", lambda: all(modes(ampere)), seconds=120)
        nodes = {"on-h100": "node-0", "on-a100": NODE, "on-a30": "node-2"}
        ampere.apply(*(by_template(name, node, ANY) for name, node in nodes.items()))
        ampere.running(*nodes)
        # Where partitions are offered, the smallest that is large enough comes first.
        assert len(migs_inside(ampere, "on-h100")) == 1
        assert len(migs_inside(ampere, "on-a100")) == 1
        # The A30's mode is off, so its card is shared.
        assert migs_inside(ampere, "on-a30") == []
        assert all(len(ampere.cards_inside(name)) == 1 for name in nodes)
    finally:
        ampere.delete("pod", "on-h100", "on-a100", "on-a30")
        ampere.delete("resourceclaimtemplate", ANY)
        ampere.delete("gpuclass", ANY)
        ampere.lab("node", "remove", "node-2")


def by_template(name: str, node: str, claims: str) -> Object:
    """A pod on a node that holds what the template gives it."""
    made = pod(
        name,
        command=("gpu-burn", "-m", "4096", "36000"),
        nodeSelector={"kubernetes.io/hostname": node},
        resourceClaims=[{"name": "part", "resourceClaimTemplateName": claims}],
    )
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "part"}]
    return made


def template(name: str, memory: str) -> Object:
    """A template for one device of the class of that name with at least so much memory."""
    exactly = {"deviceClassName": name, "capacity": {"requests": {"memory": memory}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }
