# SPDX-License-Identifier: Apache-2.0
"""One lab for all end-to-end tests: two GPU nodes with gpudeck installed by its chart."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.support import lab as labs


@pytest.fixture(scope="session")
def cluster() -> Iterator[labs.Lab]:
    """The lab `test`: node-0 has 8 H100, node-1 has 4 A100.

    `GPUDECK_TEST_LAB=NAME` takes a lab that runs already and leaves it running.
    """
    given = os.environ.get("GPUDECK_TEST_LAB")
    lab = labs.Lab(given or "test")
    if not given:
        lab.lab("down")
    lab.lab("up", "--machine", "h100-x8", "--machine", "a100-40gb-x4", timeout=3000)
    try:
        assert lab.kubeconfig
        lab.lab("install")
        lab.apply(labs.gpu_class("h100", products=["*H100*"]))
        lab.eventually("12 cards are Free", lambda: len(lab.gpus()) == 12 and lab.all_free())
        yield lab
    finally:
        if not given:
            lab.lab("down")


@pytest.fixture
def lab(cluster: labs.Lab) -> Iterator[labs.Lab]:
    """The lab, with the test's own objects removed afterwards and every card Free again."""
    yield cluster
    cluster.kubectl("delete", "pods", "-l", "test=lab", "--wait=true", "--ignore-not-found")
    cluster.kubectl("delete", "resourceclaims", "-l", "test=lab", "--ignore-not-found")
    cluster.eventually("every card is Free after the test", cluster.all_free)
