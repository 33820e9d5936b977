# SPDX-License-Identifier: Apache-2.0
"""How often the controller looks, in tests of modes."""

from __future__ import annotations

import pytest

from gpudeck.controller.modes import reconciler


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not told by a watch is looked at often."""
    monkeypatch.setattr(reconciler, "PAUSES", ((3600.0, 0.02),))
