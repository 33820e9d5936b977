# SPDX-License-Identifier: Apache-2.0
"""One object for what all cards of a model have in common.

Used by `keeping`, so that 40,000 cards hold a dozen lists of profiles, and by the counts of
the classes, which work out once a model what fits on a card. Known models are found by
comparing them: that takes a microsecond or two, a tenth of reading the profiles out.
"""

from __future__ import annotations

from gpudeck.api.v1alpha1.physicalgpu import PartitionEngines, PartitionProfile, PartitionSupport
from gpudeck.devices import cutting

_LIMIT = 256
_known: dict[int, tuple[PartitionSupport, cutting.Model]] = {}
"""By identity of the object, which is kept alive here."""
_sizes: dict[tuple[int | None, int], list[PartitionSupport]] = {}
"""By what differs between most models."""


def shared(found: PartitionSupport | None) -> PartitionSupport | None:
    """Return the one object that equals `found`; None for a card that cannot be partitioned."""
    if found is None or not found.profiles:
        return None
    size = (found.total_slices, found.profiles[0].memory_mib)
    for each in _sizes.get(size, ()):
        if each == found:
            return each
    if len(_known) >= _LIMIT:  # More than any cluster has: some node reports nonsense.
        _known.clear()
        _sizes.clear()
    _known[id(found)] = (found, _model(found))
    _sizes.setdefault(size, []).append(found)
    return found


def of(support: PartitionSupport | None) -> cutting.Model | None:
    """Return how cards with this support can be cut up; equal ones are equal."""
    if support is None or not support.profiles:
        return None
    known = _known.get(id(support))
    return known[1] if known is not None else _model(support)


def _model(support: PartitionSupport) -> cutting.Model:
    return cutting.Model(support.total_slices or 0, tuple(map(_profile, support.profiles or ())))


def _profile(found: PartitionProfile) -> cutting.Profile:
    engines = found.engines or PartitionEngines()
    counts = {
        cutting.COPY: engines.copy,
        cutting.DECODERS: engines.decoders,
        cutting.ENCODERS: engines.encoders,
        cutting.JPEG: engines.jpeg,
        cutting.OFA: engines.ofa,
    }
    return cutting.Profile(
        profile_id=found.profile_id,
        name=found.name,
        memory_mib=found.memory_mib,
        slices=found.slices,
        engines=tuple((name, count) for name, count in counts.items() if count),
        places=tuple(cutting.Place(each.start, each.size) for each in found.placements or ()),
    )
