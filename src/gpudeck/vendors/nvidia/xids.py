# SPDX-License-Identifier: Apache-2.0
"""The numbers ("Xid") that NVIDIA's driver raises: which are the card's fault.

A fault of the card makes it unfit for new work until a recovery is seen. What an
application caused, what another number or a query tells better (remapping, recovery
action), and what only informs, does not. The numbers that NVIDIA's device plugin
passes over by default (13, 31, 43, 45, 68, 109) are among the latter. A number that
is not listed counts as the card's: an unknown fault must not look like health.
Meanings and immediate actions: NVIDIA's Xid catalogue of October 2025, open kernel
module 595.
"""

from __future__ import annotations

from gpudeck.vendors import contract

_RESET = "Reset the GPU or reboot the node"
_REBOOT = "Reboot the node"
_SUPPORT = "Reset the GPU, and ask the maker if it comes again"

_FAULTS: dict[int, tuple[str, str]] = {
    46: ("GPU stopped processing", _RESET),
    48: ("double bit ECC error", _RESET),
    54: ("auxiliary power is not connected to the board", "Check the power cables"),
    62: ("internal microcontroller halt", _RESET),
    64: ("memory remapping failed", _SUPPORT),
    74: ("NVLink error", _SUPPORT),
    79: ("GPU has fallen off the bus", _REBOOT),
    95: ("uncontained memory error", _RESET),
    110: ("security fault", _RESET),
    119: ("GSP firmware does not answer", _RESET),
    120: ("GSP firmware error", _RESET),
    136: ("NVLink training failed", _RESET),
    140: ("unrecovered ECC error", _RESET),
    143: ("GPU initialisation failed", _RESET),
    151: ("key rotation error", _REBOOT),
    155: ("NVLink error told by software", _RESET),
    156: ("memory was retired", _RESET),
    157: ("retiring memory failed", _SUPPORT),
    158: ("fatal timeout", _RESET),
    167: ("fatal PCIe timeout", _RESET),
    168: ("memory capacity is reduced", _SUPPORT),
    169: ("internal microcontroller halt", _RESET),
    173: ("fatal C2C link failure", _RESET),
}

_ENGINES = (
    *range(39, 42),  # Copy engines.
    *range(68, 73),
    *range(75, 78),
    *range(82, 87),
    *range(88, 90),
    *range(96, 106),
    *range(126, 136),
    *(60, 139, 142, 152, 153),
)
"""Exceptions of one engine, which the application's work nearly always caused."""

_HARMLESS = frozenset(
    {
        *(8, 11, 13, 25, 31, 32, 43, 45, 69, 80, 109),  # The application's.
        *(37, 38, 44, 66, 67, 78, 137, 141, 159, 160, 161),  # Firmware; the catalogue: ignore.
        *(63, 92, 93, 94, 121, 171, 172),  # Memory; remapped rows and ECC counters tell the rest.
        *range(144, 151),  # NVLink 5; the recovery action tells whether anything is needed.
        *(106, 107, 154, *range(162, 167), 170, 174, 176),  # Information.
        *_ENGINES,
    }
)


def fault(xid: int) -> contract.Fault | None:
    """The card's fault that a number stands for; None when the card is not at fault."""
    if xid in _HARMLESS:
        return None
    meaning, action = _FAULTS.get(xid, ("not a number that is known to be harmless", _SUPPORT))
    return contract.Fault(
        reason="HardwareXid",
        message=f"The driver raised Xid {xid}: {meaning}. {action}.",
    )
