# SPDX-License-Identifier: Apache-2.0
"""One lab for the tests of device plugin mode: a node with four A100, and gpudeck in kube-system.

The chart is installed as the manifests of examples/ want it; `test_uninstall` comes last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.lab.ampere import chart
from tests.support.lab import Lab


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """`GPUDECK_TEST_LAB=NAME` takes a lab that runs already and leaves it running."""
    given = os.environ.get("GPUDECK_TEST_LAB")
    found = Lab(given or "ampere")
    try:
        if not given:
            found.lab("down")
            found.lab("up", "--machine", "a100-40gb-x4", timeout=3000)
        assert found.kubeconfig
        for folder in (chart.SLICING, chart.PARTITIONS):
            found.kubectl("apply", "-f", str(folder / "config.yaml"))
        chart.install(found)
        yield found
    finally:
        if not given:
            found.lab("down")
