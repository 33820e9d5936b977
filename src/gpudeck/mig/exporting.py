# SPDX-License-Identifier: Apache-2.0
"""The config that says how a node's cards are partitioned now. Pure.

Partitions are told by the driver's names. Those without use to anybody (half made) are
not told. Cards without MIG are left out, and so are those that cannot be read, which is
noted.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpudeck.mig import configs, planning
from gpudeck.vendors import contract, records


class Exported(msgspec.Struct, frozen=True):
    config: configs.Config
    notes: tuple[str, ...] = ()


def export(cards: Sequence[records.CardState]) -> Exported:
    """Return one entry for each way in which cards are partitioned."""
    notes, found = [], list[tuple[tuple[int, ...], configs.Entry]]()
    for index, card in enumerate(cards):
        reading = card.reading
        if reading is None:
            notes.append(f"Card {index} ({card.site.address}) cannot be read and is left out.")
            continue
        if reading.mode is contract.PartitioningMode.NOT_AVAILABLE:
            continue
        enabled = reading.mode is contract.PartitioningMode.ENABLED
        entry = configs.Entry(enabled=enabled, counts=planning.counts(reading) if enabled else {})
        for position, (indexes, known) in enumerate(found):
            if known == entry:
                found[position] = ((*indexes, index), known)
                break
        else:
            found.append(((index,), entry))
    if len(found) == 1 and not notes:
        return Exported((found[0][1],))
    entries = [msgspec.structs.replace(entry, devices=indexes) for indexes, entry in found]
    return Exported(tuple(entries), tuple(notes))
