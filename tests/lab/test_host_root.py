# SPDX-License-Identifier: Apache-2.0
"""The same stories on nodes whose host root is `/`, as it is on hardware.

There the simulated entries of /sys, /proc and /dev and the driver's files stand at
their real places in the node's mount namespace, and the chart's `hostRoot` is its
default.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.lab.test_restarts import (
    test_a_broken_checkpoint_is_set_aside_and_rebuilt,
    test_a_pod_with_a_claim_starts_again_after_its_node_reboots,
    test_pods_start_while_every_process_is_killed_at_random,
    test_running_pods_survive_a_kubelet_restart_and_slices_return,
)
from tests.lab.test_whole_cards import (
    test_a_device_node_made_by_hand_cannot_be_opened,
    test_a_pod_with_two_claims_sees_two_cards,
    test_a_pod_without_a_claim_sees_no_card_whatever_its_image_says,
    test_containers_of_one_claim_see_the_same_card,
    test_nine_pods_for_eight_cards_leave_one_waiting_and_explained,
)
from tests.support import lab as labs

__all__ = [
    "test_a_broken_checkpoint_is_set_aside_and_rebuilt",
    "test_a_device_node_made_by_hand_cannot_be_opened",
    "test_a_pod_with_a_claim_starts_again_after_its_node_reboots",
    "test_a_pod_with_two_claims_sees_two_cards",
    "test_a_pod_without_a_claim_sees_no_card_whatever_its_image_says",
    "test_containers_of_one_claim_see_the_same_card",
    "test_nine_pods_for_eight_cards_leave_one_waiting_and_explained",
    "test_pods_start_while_every_process_is_killed_at_random",
    "test_running_pods_survive_a_kubelet_restart_and_slices_return",
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[labs.Lab]:
    """The lab `root`: as the lab `test`, with host root `/`."""
    yield from labs.two_nodes("root", "--host-root", "/")
