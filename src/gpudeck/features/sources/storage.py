# SPDX-License-Identifier: Apache-2.0
"""The feature storage.block: name and queue attributes of each block device."""

from __future__ import annotations

from gpudeck.features.known import Known
from gpudeck.features.sources.attributes import Attributes
from gpudeck.host.root import Root

DEVICES = "/sys/block"
_VALUES = ("dax", "nr_zones", "rotational", "zoned")


def read(root: Root, known: Known) -> list[str]:
    """Add all block devices."""
    attributes = Attributes(root)
    known.instances["storage.block"] = [
        {"name": name, **attributes.of(f"{DEVICES}/{name}/queue", _VALUES)}
        for name in root.list(DEVICES)
    ]
    return attributes.left_out
