# SPDX-License-Identifier: Apache-2.0
"""The features system.osrelease and system.dmiid; system.name is the worker's to add."""

from __future__ import annotations

from gpudeck.features.known import Known
from gpudeck.host import osrelease
from gpudeck.host.root import Root

_DMI = "/sys/devices/virtual/dmi/id"
_DMI_VALUES = ("sys_vendor", "product_name")


def read(root: Root, known: Known) -> list[str]:
    """Add what os-release says, with its version in parts, and who made the machine."""
    values = osrelease.values(root)
    version = values.get("VERSION_ID", "")
    major, dot, rest = version.partition(".")
    if major:
        values["VERSION_ID.major"] = major
    if dot:
        values["VERSION_ID.minor"] = rest.partition(".")[0]
    known.attributes["system.osrelease"] = values
    made = {name: root.attribute(f"{_DMI}/{name}") for name in _DMI_VALUES}
    known.attributes["system.dmiid"] = {
        name: value for name, value in made.items() if value is not None
    }
    return []
