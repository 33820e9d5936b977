# SPDX-License-Identifier: Apache-2.0
"""When pods of a node are listed again: an annotation that nobody removes costs nothing."""

from __future__ import annotations

import pytest
from tests.unit.controller.draining.test_choosing import pod

from gpudeck.api.core import Pod
from gpudeck.controller.draining import choosing, reconciler, requests

GOES = pod(deletionTimestamp="2026-01-01T00:00:00Z")
STATIC = pod(annotations={choosing.MIRROR: "x"})


@pytest.mark.parametrize(
    ("uid", "pods", "expected"),
    [
        ("uid-a", [pod()], reconciler.LOOK_SECONDS),
        ("uid-a", [GOES], reconciler.LOOK_SECONDS),
        ("uid-a", [STATIC], reconciler.AGAIN_SECONDS),
        ("uid-a", [], None),
        ("uid-before", [pod()], None),
        ("uid-a", [pod(phase="Succeeded")], None),
        ("", [], reconciler.AGAIN_SECONDS),
    ],
)
def test_pods_are_listed_again_while_something_is_left_to_do(
    uid: str, pods: list[Pod], expected: float | None
) -> None:
    request = requests.Request(pods=[requests.Pod(namespace="t", name="a", uid=uid)])
    choice = choosing.choose("node-0", request, pods)
    assert reconciler.pause(request, choice) == expected


def test_a_request_for_nobody_is_done() -> None:
    assert reconciler.pause(requests.Request(pods=[]), choosing.Choice()) is None


def test_all_pods_of_a_node_may_be_others_later() -> None:
    request = requests.Request(all=True)
    choice = choosing.choose("node-0", request, [])
    assert reconciler.pause(request, choice) == reconciler.AGAIN_SECONDS
