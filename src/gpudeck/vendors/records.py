# SPDX-License-Identifier: Apache-2.0
"""What is known of each card, and the inventory that is published from it.

Values only: `supervisor` replaces records as things happen, `inventory` turns them
into what readers see, and two inventories are compared to tell a change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gpudeck import errors
from gpudeck.vendors import contract, health

NOT_OPENED = contract.DriverState(
    ready=False, reason="DriverNotReadYet", message="The driver has not been asked yet."
)

NOT_READ_YET = "NotReadYet"
"""Reason for which the driver is not known to serve a card."""


class CardState(contract.Value, frozen=True):
    """One card as it is published."""

    site: contract.Site
    reading: contract.CardReading | None
    """The last one that succeeded, without what only the verdict is made from."""
    driver: contract.DriverState
    health: health.Health


class Inventory(contract.Value, frozen=True):
    """Every card of the maker, by address."""

    cards: tuple[CardState, ...] = ()
    driver: contract.DriverState = NOT_OPENED


class Record(contract.Value, frozen=True):
    """One card as the supervisor knows it."""

    site: contract.Site
    memory: health.Memory
    reading: contract.CardReading | None = None
    failure: contract.Fault | None = None
    """Why the last reading failed."""
    crashes: int = 0
    """Processes in a row that ended while this card was read."""

    def replace(self, **changes: Any) -> Record:
        """This record with other values."""
        return msgspec.structs.replace(self, **changes)

    def at(self, site: contract.Site) -> Record:
        """The bus was looked at again."""
        return self if site == self.site else self.replace(site=site)

    def read(self, reading: contract.CardReading, now: health.Moment) -> Record:
        """A reading succeeded."""
        memory = health.after_reading(self.memory, reading, now)
        seen = msgspec.structs.replace(
            reading, faults=(), recovery=contract.Recovery.UNKNOWN, lifetime=None
        )
        return self.replace(memory=memory, reading=seen, failure=None, crashes=0)

    def failed(self, fault: contract.Fault, now: health.Moment) -> Record:
        """A reading failed."""
        memory = health.after_failure(self.memory, fault, now)
        return self.replace(memory=memory, failure=fault)

    def raised(self, event: contract.CardEvent, now: health.Moment) -> Record:
        """The driver raised an event about the card."""
        return self.replace(memory=health.after_event(self.memory, event, now))

    def silent(self, now: health.Moment) -> Record:
        """Time has passed."""
        memory = health.after_silence(self.memory, now)
        return self if memory is self.memory else self.replace(memory=memory)

    def without_driver(self, driver: contract.DriverState, now: health.Moment) -> Record:
        """The driver is away; what it told of the card no longer holds."""
        return self.replace(
            memory=health.without_driver(self.memory, driver, now), reading=None, failure=None
        )


def inventory(cards: Iterable[Record], driver: contract.DriverState) -> Inventory:
    """Make the published form; two equal states give two equal inventories."""
    ordered = sorted(cards, key=lambda record: record.site.address)
    return Inventory(cards=tuple(_state(record, driver) for record in ordered), driver=driver)


def _state(record: Record, driver: contract.DriverState) -> CardState:
    return CardState(
        site=record.site,
        reading=record.reading,
        driver=_driver_of(record, driver),
        health=record.memory.health,
    )


def _driver_of(record: Record, driver: contract.DriverState) -> contract.DriverState:
    site = record.site
    if not site.served:
        bound = f"bound to {site.driver}" if site.driver else "bound to no driver"
        return _not_ready(driver, "DriverNotBound", f"{site.address} is {bound} in the kernel.")
    if not driver.ready or record.reading is not None:
        return driver
    if record.failure is not None:
        return _not_ready(driver, record.failure.reason, record.failure.message)
    return _not_ready(driver, NOT_READ_YET, f"{site.address} has not been read yet.")


def _not_ready(driver: contract.DriverState, reason: str, message: str) -> contract.DriverState:
    return msgspec.structs.replace(driver, ready=False, reason=reason, message=message)


def hung(address: str, error: errors.GpudeckError) -> contract.Fault:
    """The fault of a card whose reading has passed its deadline."""
    text = f"{address}: {error.message}. The process was ended; the card is tried again alone."
    return contract.Fault(reason="Hung", message=text)


def crashed(address: str, error: errors.GpudeckError) -> contract.Fault:
    """The fault of a card whose reading ends the process again and again."""
    text = f"{address}: {error.message}, repeatedly. The card is tried again alone."
    return contract.Fault(reason="LibraryCrashed", message=text)


def driver_hung(error: errors.GpudeckError) -> contract.DriverState:
    """The state of a driver whose library does not come up."""
    text = f"The driver's library does not answer: {error.message}."
    return contract.DriverState(ready=False, reason="DriverHung", message=text)


def driver_crashed(error: errors.GpudeckError) -> contract.DriverState:
    """The state of a driver whose library ends the process that opens it."""
    text = f"The driver's library ends its process when it is opened: {error.message}."
    return contract.DriverState(ready=False, reason="LibraryCrashed", message=text)
