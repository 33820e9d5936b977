# SPDX-License-Identifier: Apache-2.0
"""Which mode a Node is to have."""

from __future__ import annotations

import pytest

from gpudeck.api import labels
from gpudeck.api.meta import ObjectMeta
from gpudeck.controller.modes import deciding

DRA, PLUGIN = labels.MODE_DRA, labels.MODE_DEVICE_PLUGIN


def node(*, chosen: str = "", active: str = "", vendor: str = "nvidia") -> ObjectMeta:
    known = {labels.VENDOR: vendor, labels.MODE: chosen, labels.ACTIVE_MODE: active}
    return ObjectMeta(name="node-0", labels={key: value for key, value in known.items() if value})


@pytest.mark.parametrize(
    ("meta", "default", "expected"),
    [
        (node(), DRA, DRA),
        (node(), PLUGIN, PLUGIN),
        (node(chosen=PLUGIN), DRA, PLUGIN),
        (node(chosen=DRA, active=PLUGIN), PLUGIN, DRA),
        (node(chosen="mps", active=DRA), PLUGIN, DRA),
        (node(chosen="mps"), PLUGIN, PLUGIN),
        (ObjectMeta(name="node-0"), DRA, DRA),
    ],
)
def test_a_node_is_to_have_what_its_label_chooses_or_the_default(
    meta: ObjectMeta, default: str, expected: str
) -> None:
    assert deciding.wanted(meta, default) == expected


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        (node(), PLUGIN),
        (node(chosen=DRA), DRA),
        (node(active=DRA), DRA),
        (node(active="mps"), PLUGIN),
        (node(vendor=""), None),
        (node(vendor="", active=DRA), None),
    ],
)
def test_a_node_with_cards_and_no_other_has_an_active_mode(
    meta: ObjectMeta, expected: str | None
) -> None:
    assert deciding.label(meta, PLUGIN) == expected
