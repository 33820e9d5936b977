# SPDX-License-Identifier: Apache-2.0
"""PCI addresses and UUIDs in every spelling that sysfs, NVML and people use."""

from __future__ import annotations

import pytest

from gpudeck.devices.identities import GpuUuid, PciAddress
from gpudeck.errors import InvalidError


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("10000:e1:00.0", "10000:e1:00.0"),
        ("1b:00.0", "0000:1b:00.0"),
        ("0000-1b-1f-7", "0000:1b:1f.7"),
    ],
)
def test_every_spelling_of_an_address_is_read(text: str, canonical: str) -> None:
    assert str(PciAddress.parse(text)) == canonical


@pytest.mark.parametrize(
    "text", ["", "0000:1b:20.0", "0000:1b:00.8", "0000:1b:00", "gpu", "\u0660000:1b:00.0"]
)
def test_what_is_no_address_is_refused_by_value(text: str) -> None:
    with pytest.raises(InvalidError) as caught:
        PciAddress.parse(text)
    assert caught.value.reason == "InvalidPciAddress"
    assert repr(text) in caught.value.message


def test_addresses_sort_by_place_and_not_by_spelling() -> None:
    parsed = sorted(
        PciAddress.parse(text) for text in ("10000:01:00.0", "000f:01:00.0", "0000:ff:00.0")
    )
    assert [each.domain for each in parsed] == [0, 0xF, 0x10000]


def test_a_dashed_address_reads_back() -> None:
    address = PciAddress.parse("000f:01:00.0")
    assert PciAddress.parse(address.dashed) == address


def test_uuids_are_equal_in_any_case() -> None:
    text = "GPU-4d6a2c6e-95ec-8a3b-11f3-6a8e7f1c2b3d"
    assert GpuUuid.parse(text.lower()) == GpuUuid.parse(text.upper()) == GpuUuid(text)
    assert GpuUuid.parse("mig-4d6a2c6e-95ec-8a3b-11f3-6a8e7f1c2b3d").is_partition


def test_what_is_no_uuid_is_refused() -> None:
    with pytest.raises(InvalidError):
        GpuUuid.parse("GPU-1234")
