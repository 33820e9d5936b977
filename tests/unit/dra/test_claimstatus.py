# SPDX-License-Identifier: Apache-2.0
"""What is said of each device in a claim's status."""

from __future__ import annotations

from typing import Any

import msgspec

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import names, resource
from gpudeck.devices.identities import PciAddress
from gpudeck.dra import claimstatus
from gpudeck.dra.allocations import HeldDevice
from gpudeck.dra.checkpoint import Entry, Given, State

ADDRESS = PciAddress.parse("0000:01:00.0")
CARD = adapter_pb2.Card(
    pci_address=str(ADDRESS),
    uuid="GPU-1",
    health=adapter_pb2.Health(verdict=adapter_pb2.VERDICT_HEALTHY, reason="Healthy"),
)
CARDS = {names.gpu_device_name(ADDRESS): CARD}


def said(device: HeldDevice, given: Given, cards: Any = None) -> resource.ClaimDeviceStatus:
    entry = Entry(state=State.COMPLETED, name="c", devices=[device], given={device.key: given})
    (found,) = claimstatus.wanted(entry, CARDS if cards is None else cards, "node-0")
    return found


def facts(found: resource.ClaimDeviceStatus) -> dict[str, Any]:
    assert found.data is not msgspec.UNSET
    read: dict[str, Any] = msgspec.json.decode(found.data)
    return read


def test_a_partition_tells_its_own_uuid_its_card_and_its_place() -> None:
    name = names.mig_device_name(ADDRESS, "1g.10gb", 19, 4)
    device = HeldDevice(name=name, profile="1g.10gb", size=1)
    assert facts(said(device, Given(uuid="MIG-1"))) == {
        "uuid": "MIG-1",
        "pciBusID": "0000:01:00.0",
        "parentUUID": "GPU-1",
        "profile": "1g.10gb",
        "placement": {"start": 4, "size": 1},
    }


def test_a_share_tells_what_was_agreed_and_who_keeps_it() -> None:
    device = HeldDevice(
        name=names.share_device_name(ADDRESS), share_id="s-1", memory=8 << 30, cores=25
    )
    why = "The driver has no limits by cgroup."
    loose = said(device, Given(uuid="GPU-1", limits_memory_message=why))
    assert loose.share_id == "s-1"
    assert facts(loose) == {
        "uuid": "GPU-1",
        "gpuUUID": "GPU-1",
        "pciBusID": "0000:01:00.0",
        "memory": 8 << 30,
        "memoryLimit": "None",
        "memoryLimitMessage": why,
        "cores": 25,
    }
    how = "The containers of a pod have the amount together."
    kept = said(device, Given(uuid="GPU-1", limits_memory=True, limits_memory_message=how))
    assert facts(kept)["memoryLimit"] == "Driver"
    assert facts(kept)["memoryLimitMessage"] == how


def test_a_card_that_is_not_seen_is_of_unknown_health() -> None:
    device = HeldDevice(name=names.gpu_device_name(ADDRESS))
    found = {each.type: each for each in said(device, Given(), {}).conditions or ()}
    assert (found["Healthy"].status, found["Healthy"].reason) == ("Unknown", "CardNotSeen")
    assert found["Ready"].status == "True"


def test_the_same_is_the_same_whenever_it_was_said() -> None:
    device = HeldDevice(name=names.gpu_device_name(ADDRESS))
    first, second = said(device, Given(uuid="GPU-1")), said(device, Given(uuid="GPU-1"))
    for each in second.conditions or ():
        each.last_transition_time = "2026-01-01T00:00:00Z"
    assert claimstatus.same([first], [second])
    assert not claimstatus.same([first], [said(device, Given(uuid="GPU-2"))])
    assert not claimstatus.same([], [first])
