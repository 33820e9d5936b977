# SPDX-License-Identifier: Apache-2.0
"""Stories of a card's files again, on nodes whose host root is `/`, as it is on hardware.

There the simulated entries of /sys, /proc and /dev and the driver's files stand at
their real places in the node's mount namespace, and the chart's `hostRoot` is its
default.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.lab.test_restarts import test_a_pod_with_a_claim_starts_again_after_its_node_reboots
from tests.lab.test_whole_cards import (
    test_a_device_node_made_by_hand_cannot_be_opened,
    test_a_pod_with_two_claims_sees_two_cards,
    test_a_pod_without_a_claim_sees_no_card_whatever_its_image_says,
)
from tests.support import lab as labs

__all__ = [
    "test_a_device_node_made_by_hand_cannot_be_opened",
    "test_a_pod_with_a_claim_starts_again_after_its_node_reboots",
    "test_a_pod_with_two_claims_sees_two_cards",
    "test_a_pod_without_a_claim_sees_no_card_whatever_its_image_says",
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[labs.Lab]:
    """The lab `root`: as the lab `test`, with host root `/`."""
    yield from labs.two_nodes("root", "--host-root", "/")
