# SPDX-License-Identifier: Apache-2.0
"""A host of simulated cards as one JSON file, and the ways in which a test changes it.

Every change replaces the file, so a reader in another process sees the state before or
the state after.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
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
    used: bool = False
    """A process works on it: nothing of it can be removed and its mode cannot change."""
    reset_hangs: bool = False
    """A reset of any card does not end while this is set."""
    reset_fails: contract.Fault | None = None
    """A reset of the card ends with this reason and message."""
    making_fails: bool = False
    """A partition that is made comes to nothing."""


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


PROFILES = (
    contract.PartitionProfile(
        name="2g.4gb",
        profile_id=14,
        memory_mib=4096,
        max_instances=2,
        slices=2,
        multiprocessors=28,
        placements=(contract.Placement(start=0, size=2), contract.Placement(start=2, size=2)),
        copy_engines=2,
        decoders=2,
    ),
    contract.PartitionProfile(
        name="1g.2gb",
        profile_id=19,
        memory_mib=2048,
        max_instances=4,
        slices=1,
        multiprocessors=14,
        placements=tuple(contract.Placement(start=start, size=1) for start in range(4)),
        copy_engines=1,
        decoders=1,
    ),
)
"""Profiles of the cards that can be partitioned: four slices of 2 GiB."""


def partitionable(count: int, *, dynamic: bool = True) -> Machine:
    """A host with `count` equal cards that can be partitioned; the mode is off."""
    machine = make(count)
    cards = []
    for card in machine.cards:
        reading = msgspec.structs.replace(
            card.reading,
            total_slices=4,
            profiles=PROFILES,
            mode=contract.PartitioningMode.DISABLED,
            pending_mode=contract.PartitioningMode.DISABLED,
            dynamic=dynamic,
        )
        cards.append(msgspec.structs.replace(card, reading=reading))
    return msgspec.structs.replace(machine, cards=tuple(cards))


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

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else changes the host inside the block; not to be entered twice."""
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def change(self, **changes: Any) -> None:
        """Change the host, e.g. `driver=…`."""
        with self.locked():
            self.write(msgspec.structs.replace(self.read(), **changes))

    def change_card(self, index: int, **changes: Any) -> None:
        """Change a card, e.g. `hangs=True`."""
        with self.locked():
            self.put_card(index, msgspec.structs.replace(self.read().cards[index], **changes))

    def change_reading(self, index: int, **changes: Any) -> None:
        """Change what a card tells, e.g. `faults=(…,)`."""
        with self.locked():
            card = self.read().cards[index]
            reading = msgspec.structs.replace(card.reading, **changes)
            self.put_card(index, msgspec.structs.replace(card, reading=reading))

    def put_card(self, index: int, card: Card) -> None:
        """Replace a card; inside `locked`."""
        machine = self.read()
        cards = (*machine.cards[:index], card, *machine.cards[index + 1 :])
        self.write(msgspec.structs.replace(machine, cards=cards))

    def raise_event(
        self, index: int | None, xid: int, fault: contract.Fault | None, *, instance: str = ""
    ) -> None:
        """Let the driver raise something about a card; None: it does not say about which."""
        with self.locked():
            machine = self.read()
            address = machine.cards[index].site.address if index is not None else None
            raised = contract.CardEvent(address=address, xid=xid, fault=fault, instance=instance)
            event = Event(number=len(machine.events) + 1, event=raised)
            self.write(msgspec.structs.replace(machine, events=(*machine.events, event)))
