# SPDX-License-Identifier: Apache-2.0
"""The feature storage.block: name and queue attributes of each block device."""

from __future__ import annotations

from gpudeck import errors
from gpudeck.features.known import Known
from gpudeck.host.root import Root

DEVICES = "/sys/block"
_VALUES = ("dax", "nr_zones", "rotational", "zoned")


def read(root: Root, known: Known) -> list[str]:
    """Add all block devices."""
    found: list[dict[str, str]] = []
    left_out = []
    for name in root.list(DEVICES):
        try:
            values = {each: root.attribute(f"{DEVICES}/{name}/queue/{each}") for each in _VALUES}
        except errors.GpudeckError as error:
            left_out.append(error.message)
            continue
        present = {key: value for key, value in values.items() if value is not None}
        found.append({"name": name, **present})
    known.instances["storage.block"] = found
    return left_out
