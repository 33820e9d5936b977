# SPDX-License-Identifier: Apache-2.0
"""Which pods are evicted when a process of a node asks for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpudeck.api.core import Pod
from gpudeck.controller.draining import choosing, requests


def pod(name: str = "a", *, node: str = "node-0", phase: str = "Running", **meta: Any) -> Pod:
    value = {
        "metadata": {"name": name, "namespace": "t", "uid": f"uid-{name}", **meta},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }
    return msgspec.convert(value, Pod)


def chosen(*pods: Pod, names: str = "a", uid: str = "") -> choosing.Choice:
    named = [
        requests.Pod(namespace="t", name=name, uid=uid or f"uid-{name}") for name in names.split()
    ]
    return choosing.choose("node-0", requests.Request(pods=named), pods)


def evicted(*pods: Pod, names: str = "a", uid: str = "") -> list[str]:
    return [each.name for each in chosen(*pods, names=names, uid=uid).evict]


def test_the_pods_that_are_named_and_no_others() -> None:
    assert evicted(pod("a"), pod("b"), pod("c"), names="a c c") == ["a", "c"]


@pytest.mark.parametrize(
    ("left_alone", "are_left"),
    [
        (pod(node="node-1"), False),
        (pod(deletionTimestamp="2026-01-01T00:00:00Z"), True),
        (pod(phase="Succeeded"), False),
        (pod(phase="Failed"), False),
    ],
)
def test_pods_of_other_nodes_and_those_that_go_or_have_ended_are_left(
    left_alone: Pod, *, are_left: bool
) -> None:
    assert chosen(left_alone) == choosing.Choice(are_left=are_left)


def test_all_pods_of_a_node_but_those_that_come_back_at_once() -> None:
    static = pod("s", annotations={choosing.MIRROR: "x"})
    owner = {"kind": "DaemonSet", "name": "d", "uid": "u", "apiVersion": "apps/v1"}
    daemon = pod("d", ownerReferences=[{**owner, "controller": True}])
    request = requests.Request(all=True, id="1")
    choice = choosing.choose("node-0", request, [pod("a"), static, daemon, pod("b", node="node-1")])
    assert ([each.name for each in choice.evict], choice.are_left) == (["a"], True)
    assert choosing.choose("node-0", request, [static, daemon]) == choosing.Choice()


def test_a_pod_that_was_made_anew_is_left() -> None:
    assert evicted(pod("a"), uid="before") == []


def test_a_pod_that_is_named_without_its_uid_is_the_one_of_that_name_on_the_node() -> None:
    named = requests.Request(pods=[requests.Pod(namespace="t", name="a")])
    choice = choosing.choose("node-0", named, [pod("a"), pod("b")])
    assert [each.uid for each in choice.evict] == ["uid-a"]
    assert choosing.choose("node-0", named, [pod("a", node="node-1")]) == choosing.Choice()


def test_a_pod_that_would_come_back_at_once_is_passed_over_with_a_reason() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "controller": True}
    choice = chosen(
        pod("a", ownerReferences=[owner]),
        pod("b", annotations={choosing.MIRROR: "x"}),
        names="a b",
    )
    assert choice.evict == ()
    assert choice.passed == (
        "t/a belongs to DaemonSet logs and is not evicted.",
        "t/b is a static pod of the node and is not evicted.",
    )


def test_a_pod_of_another_owner_goes() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True}
    assert evicted(pod("a", ownerReferences=[owner])) == ["a"]
