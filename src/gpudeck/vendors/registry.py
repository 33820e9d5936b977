# SPDX-License-Identifier: Apache-2.0
"""The makers by name. A new one is one line here and one folder beside.

A maker's package is imported when it is asked for, so that a process of one maker
holds nothing of another.
"""

from __future__ import annotations

import importlib
from typing import cast

from gpudeck import errors
from gpudeck.vendors import contract

_PACKAGES = {
    "nvidia": "gpudeck.vendors.nvidia",
    "simulated": "gpudeck.vendors.simulated",
}


def names() -> list[str]:
    """Every maker there is."""
    return sorted(_PACKAGES)


def check(name: str) -> None:
    """Raise InvalidError that lists the makers there are, unless `name` is one of them."""
    if name not in _PACKAGES:
        allowed = ", ".join(names())
        raise errors.InvalidError(
            f"vendor: {name!r} is not a known maker; allowed: {allowed}",
            reason="UnknownVendor",
            field="vendor",
            allowed=allowed,
        )


def load(name: str) -> contract.Maker:
    """Import a maker's package. Raises InvalidError as `check` does."""
    check(name)
    return cast(contract.Maker, importlib.import_module(_PACKAGES[name]))
