# SPDX-License-Identifier: Apache-2.0
"""One lab for all end-to-end tests: two GPU nodes with gpudeck installed by its chart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support import lab as labs


@pytest.fixture(scope="session")
def cluster() -> Iterator[labs.Lab]:
    """The lab `test`: node-0 has 8 H100, node-1 has 4 A100."""
    yield from labs.two_nodes("test")


@pytest.fixture
def lab(cluster: labs.Lab) -> Iterator[labs.Lab]:
    """The lab, with the test's own objects removed afterwards and every card Free again."""
    yield cluster
    cluster.kubectl("delete", "pods", "-l", "test=lab", "--wait=true", "--ignore-not-found")
    cluster.kubectl("delete", "resourceclaims", "-l", "test=lab", "--ignore-not-found")
    cluster.eventually("every card is Free after the test", cluster.all_free)
