# SPDX-License-Identifier: Apache-2.0
"""Whole cards reach pods, one holder each, and nobody sees more than was asked for."""

from __future__ import annotations

import json

from tests.support.lab import Lab, claim, pod


def test_nine_pods_for_eight_cards_leave_one_waiting_and_explained(lab: Lab) -> None:
    names = [f"nine-{number}" for number in range(9)]
    lab.apply(*(pod(name, limits={"gpu.deckhouse.io/h100": 1}) for name in names))
    lab.eventually("eight of nine run", lambda: _count(lab, "Running") == 8, seconds=120)
    waiting = next(name for name in names if lab.phase(name) == "Pending")
    running = [name for name in names if name != waiting]

    seen = {name: lab.cards_inside(name) for name in running}
    assert all(len(cards) == 1 for cards in seen.values())
    assert len({cards[0] for cards in seen.values()}) == 8
    lab.eventually(
        "gpudeck's account agrees with what the pods see",
        lambda: all(lab.held()[cards[0]] == [name] for name, cards in seen.items()),
    )

    why = json.loads(lab.gpudeck("explain", "pod", f"default/{waiting}", "--json"))
    assert sum(why["counts"].values()) == 12
    text = lab.gpudeck("explain", "pod", f"default/{waiting}")
    assert "h100" in text
    assert "8" in text

    lab.delete("pod", running[0])
    lab.eventually("the ninth starts", lambda: lab.phase(waiting) == "Running", seconds=10)


def _count(lab: Lab, phase: str) -> int:
    return sum(each["status"].get("phase") == phase for each in lab.list("pods", "-l", "test=lab"))


def test_containers_of_one_claim_see_the_same_card(lab: Lab) -> None:
    shared = pod("same-card", claims=["same-card"])
    main = shared["spec"]["containers"][0]
    shared["spec"]["containers"].append({**main, "name": "second", "command": ["sleep", "36000"]})
    lab.apply(claim("same-card"), shared)
    lab.running("same-card")
    first = lab.cards_inside("same-card", "main")
    assert len(first) == 1
    assert first == lab.cards_inside("same-card", "second")


def test_a_pod_with_two_claims_sees_two_cards(lab: Lab) -> None:
    lab.apply(claim("left"), claim("right"), pod("two-cards", claims=["left", "right"]))
    lab.running("two-cards")
    assert len(set(lab.cards_inside("two-cards"))) == 2


def test_a_pod_without_a_claim_sees_no_card_whatever_its_image_says(lab: Lab) -> None:
    uninvited = pod("uninvited", command=["sleep", "36000"])
    uninvited["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    lab.apply(uninvited)
    lab.running("uninvited")
    devices = lab.kubectl("exec", "uninvited", "--", "sh", "-c", "ls /dev | grep -c nvidia || true")
    assert devices.strip() == "0"
    assert lab.cards_inside("uninvited") == []


def test_a_device_node_made_by_hand_cannot_be_opened(lab: Lab) -> None:
    lab.apply(
        pod("holder", limits={"nvidia.com/gpu": 1}),
        pod("maker", command=["sleep", "36000"]),
    )
    lab.running("holder", "maker")
    open_it = "mknod /dev/nvidia0 c 195 0 && head -c1 /dev/nvidia0 2>&1 || true"
    assert "not permitted" in lab.kubectl("exec", "maker", "--", "sh", "-c", open_it)
    every = (
        "for n in 0 1 2 3 4 5 6 7; do [ -e /dev/nvidia$n ] || mknod /dev/nvidia$n c 195 $n; done"
    )
    lab.kubectl("exec", "holder", "--", "sh", "-c", every)
    assert len(lab.cards_inside("holder")) == 1
