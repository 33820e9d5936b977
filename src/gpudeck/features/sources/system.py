# SPDX-License-Identifier: Apache-2.0
"""The features system.osrelease and system.dmiid; `reading` adds system.name."""

from __future__ import annotations

import re

from gpudeck.features.known import Known
from gpudeck.features.sources.attributes import Attributes
from gpudeck.host import osrelease
from gpudeck.host.root import Root

_DMI = "/sys/devices/virtual/dmi/id"
_DMI_VALUES = ("sys_vendor", "product_name")
_VERSION = re.compile(r"(?P<major>\d+)(?:\.(?P<minor>\d+))?(?:\..*)?")
"""Numbers only: what stands in nodeAffinity is compared as such."""


def read(root: Root, known: Known) -> list[str]:
    """Add what os-release says, with its version in parts, and who made the machine."""
    values = osrelease.values(root)
    version = _VERSION.fullmatch(values.get("VERSION_ID", ""))
    for name, part in (version.groupdict() if version else {}).items():
        if part is not None:
            values[f"VERSION_ID.{name}"] = part
    known.attributes["system.osrelease"] = values
    attributes = Attributes(root)
    known.attributes["system.dmiid"] = attributes.of(_DMI, _DMI_VALUES)
    return attributes.left_out
