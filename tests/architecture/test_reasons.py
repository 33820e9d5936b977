# SPDX-License-Identifier: Apache-2.0
"""The reference of reasons has no word that nothing says any more."""

from __future__ import annotations

import re

from tests.support.lab import ROOT

_BY_OTHERS = {"FailedPrepareDynamicResources", "UnexpectedAdmissionError"}
"""Of the kubelet (1.37)."""
_PREFIX = "Mig"
"""Of the Events of mig-manager, before a reason of its condition."""


def test_every_reason_of_the_reference_stands_in_the_source() -> None:
    text = (ROOT / "docs/reference/conditions.md").read_text()
    reasons = set(re.findall(r"`((?:[A-Z][a-z]+){2,})`", text)) - _BY_OTHERS
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert len(reasons) > 100
    gone = {each for each in reasons if each not in source}
    assert {each for each in gone if each.removeprefix(_PREFIX) not in source} == set()
