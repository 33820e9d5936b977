# SPDX-License-Identifier: Apache-2.0
"""The adapter's inventory by device."""

from __future__ import annotations

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.dra import adapters


def test_cards_are_found_by_device_name_in_any_spelling_of_the_address() -> None:
    cards = [
        adapter_pb2.Card(pci_address="00000000:1B:00.0"),
        adapter_pb2.Card(pci_address="000f:01:00.0"),
    ]
    assert list(adapters.by_device(cards)) == ["gpu-0000-1b-00-0", "gpu-000f-01-00-0"]


def test_a_card_with_an_unreadable_address_does_not_take_the_others_along() -> None:
    cards = [adapter_pb2.Card(pci_address="?"), adapter_pb2.Card(pci_address="0000:01:00.0")]
    assert list(adapters.by_device(cards)) == ["gpu-0000-01-00-0"]
