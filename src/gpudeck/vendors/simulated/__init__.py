# SPDX-License-Identifier: Apache-2.0
"""Cards that a file describes: the contract in pure Python, for tests of everything above it.

    machine       the file, and how a test changes it
    partitioning  what an action does to a card
    cards         `contract.Vendor` and `contract.Library` over the file

The file is `simulated.json` below the host root, and is read anew at every call, so that
serving process, library process and test see the same cards.
"""

from __future__ import annotations

from gpudeck.vendors import contract
from gpudeck.vendors.simulated import cards


def vendor(settings: contract.VendorSettings) -> contract.Vendor:
    """Make the serving side."""
    return cards.SimulatedVendor(settings)


def library(settings: contract.VendorSettings, progress: contract.Progress) -> contract.Library:
    """Make the library side."""
    return cards.SimulatedLibrary(settings, progress)
