# SPDX-License-Identifier: Apache-2.0
"""The clique of a card is named only once the card has joined a fabric that has a name."""

from __future__ import annotations

import pynvml
import pytest

from gpudeck.vendors.nvidia import fabric

CLUSTER = bytes(range(16))
JOINED = pynvml.NVML_GPU_FABRIC_STATE_COMPLETED


def test_a_card_that_has_joined_has_a_clique() -> None:
    found = fabric.clique(JOINED, pynvml.NVML_SUCCESS, CLUSTER, 7)
    assert found == "00010203-0405-0607-0809-0a0b0c0d0e0f.7"


@pytest.mark.parametrize(
    ("state", "status", "cluster"),
    [
        (pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS, pynvml.NVML_SUCCESS, CLUSTER),
        (JOINED, pynvml.NVML_ERROR_UNKNOWN, CLUSTER),
        (JOINED, pynvml.NVML_SUCCESS, bytes(16)),
    ],
)
def test_a_card_that_has_not_has_none(state: int, status: int, cluster: bytes) -> None:
    assert fabric.clique(state, status, cluster, 7) == ""
