# SPDX-License-Identifier: Apache-2.0
"""A host of simulated cards as one JSON file, and the ways in which a test changes it.

Every change replaces the file, so a reader in another process sees the state before or
the state after.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from gpudeck import errors
from gpudeck.vendors import contract

FILE = "simulated.json"


class Card(contract.Value, frozen=True):
    """One card: what it tells, and how it misbehaves."""

    site: contract.Site
    reading: contract.CardReading
    error: contract.Fault | None = None
    """Every reading fails with this reason and message."""
    hangs: bool = False
    """A reading does not return while this is set."""
    crashes: bool = False
    """A reading ends the process."""


class Event(contract.Value, frozen=True):
    number: int
    event: contract.CardEvent


class Machine(contract.Value, frozen=True):
    """All cards of a host, its driver and what was raised so far."""

    driver: contract.DriverState
    cards: tuple[Card, ...] = ()
    events: tuple[Event, ...] = ()
    opening_hangs: bool = False
    opening_crashes: bool = False


def make(count: int) -> Machine:
    """A host with `count` equal cards."""
    ready = contract.DriverState(
        ready=True,
        reason="DriverReady",
        message="The simulated driver serves the cards.",
        version="1.2.3",
        api_version="4.5",
    )
    return Machine(driver=ready, cards=tuple(_card(index) for index in range(count)))


def _card(index: int) -> Card:
    address = f"0000:{index + 1:02x}:00.0"
    reading = contract.CardReading(
        address=address,
        uuid=f"GPU-00000000-0000-0000-0000-{index:012d}",
        minor=index,
        product_name="Simulated Card 8GB",
        architecture="Simulated",
        compute_api="Simulated",
        compute_capability="1.0",
        memory_bytes=8 << 30,
        recovery=contract.Recovery.NONE,
        lifetime=1000,
    )
    site = contract.Site(address=address, driver="simulated", pcie_root="pci0000:00", numa_node=0)
    return Card(site=site, reading=reading)


class Bench:
    """The file of one host in the hands of a test."""

    def __init__(self, root: Path) -> None:
        self.path = root / FILE

    def write(self, machine: Machine) -> None:
        """Replace the whole host."""
        fresh = self.path.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(msgspec.json.encode(machine))
        fresh.replace(self.path)

    def read(self) -> Machine:
        """The host now. Raises NotFoundError where there is none."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Machine)
        except FileNotFoundError as error:
            raise errors.NotFoundError(f"{self.path} does not exist") from error

    def change(self, **changes: Any) -> None:
        """Change the host, e.g. `driver=…`."""
        self.write(msgspec.structs.replace(self.read(), **changes))

    def change_card(self, index: int, **changes: Any) -> None:
        """Change a card, e.g. `hangs=True`."""
        machine = self.read()
        cards = list(machine.cards)
        cards[index] = msgspec.structs.replace(cards[index], **changes)
        self.write(msgspec.structs.replace(machine, cards=tuple(cards)))

    def change_reading(self, index: int, **changes: Any) -> None:
        """Change what a card tells, e.g. `faults=(…,)`."""
        reading = self.read().cards[index].reading
        self.change_card(index, reading=msgspec.structs.replace(reading, **changes))

    def raise_event(self, index: int, xid: int, fault: contract.Fault | None) -> None:
        """Let the driver raise something about a card."""
        machine = self.read()
        address = machine.cards[index].site.address
        event = Event(
            number=len(machine.events) + 1,
            event=contract.CardEvent(address=address, xid=xid, fault=fault),
        )
        self.write(msgspec.structs.replace(machine, events=(*machine.events, event)))
