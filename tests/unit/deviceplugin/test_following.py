# SPDX-License-Identifier: Apache-2.0
"""When a plugin serves and registers anew, and when it leaves well alone."""

import msgspec
import pytest

from gpudeck.deviceplugin.following import Situation, Step, is_settled, step

KUBELET, NEXT = (1, 1), (1, 2)
WELL = Situation(
    now=100.0, serves=True, kubelet=KUBELET, registered=KUBELET, followed=True, since=50.0
)


@pytest.mark.parametrize(
    ("what", "changes", "expected"),
    [
        ("all is well", {}, Step.NOTHING),
        ("the socket was removed", {"serves": False}, Step.SERVE),
        ("both sockets were removed", {"serves": False, "kubelet": None}, Step.SERVE),
        ("the kubelet is away", {"kubelet": None}, Step.NOTHING),
        ("another kubelet is there", {"kubelet": NEXT}, Step.REGISTER),
        ("never registered", {"registered": None}, Step.REGISTER),
        ("just registered, not followed yet", {"followed": False, "since": 99.0}, Step.NOTHING),
        ("nobody follows any more", {"followed": False}, Step.REGISTER),
        (
            "refused a moment ago",
            {"registered": None, "failures": 3, "tried": 99.0},
            Step.NOTHING,
        ),
        ("refused long ago", {"registered": None, "failures": 30, "tried": 60.0}, Step.REGISTER),
    ],
)
def test_the_next_step(what: str, changes: dict[str, object], expected: Step) -> None:
    assert step(msgspec.structs.replace(WELL, **changes)) is expected, what


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"serves": False}, False),
        ({"kubelet": None}, False),
        ({"kubelet": None, "registered": None}, False),
        ({"kubelet": NEXT}, False),
        ({"followed": False}, False),
    ],
)
def test_a_plugin_is_settled_while_its_kubelet_follows(
    changes: dict[str, object], expected: bool
) -> None:
    assert is_settled(msgspec.structs.replace(WELL, **changes)) is expected
