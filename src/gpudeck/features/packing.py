# SPDX-License-Identifier: Apache-2.0
"""NodeFeatures as the master holds them: compressed, because it holds those of all nodes.

One has a hundred kilobytes of text and, as objects, a megabyte: the options of its kernel
alone are some thousand strings. Packed it has a tenth of the text, and to unpack it takes a
millisecond or two.
"""

from __future__ import annotations

import zlib

import msgspec

from gpudeck import logs
from gpudeck.api import labels
from gpudeck.api.meta import ObjectMeta, Wire
from gpudeck.api.nodefeatures import NodeFeature, NodeFeatureSpec

_LEVEL = 1  # Three quarters of what the slowest level saves, in a tenth of its time.
_EMPTY = msgspec.Raw(b"null")
_decoder = msgspec.json.Decoder(NodeFeatureSpec)
_recent: dict[bytes, NodeFeatureSpec] = {}
"""The few that came last, as they are asked for at once: packed and what they say."""
_RECENT = 8
_log = logs.get(__name__)


class PackedFeature(Wire):
    """A NodeFeature as it comes (`spec`) and as it is kept (`packed`)."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    packed: bytes = b""


def node_of(found: PackedFeature) -> str:
    """What its label says of its node's name; empty if there is no such label."""
    return (found.metadata.labels or {}).get(labels.FEATURES_NODE, "")


def pack(found: PackedFeature) -> PackedFeature | None:
    """Return what is kept of one that has just come; None if it cannot be read or used."""
    meta = found.metadata
    if not node_of(found):
        return None
    try:
        spec = _decoder.decode(found.spec)
    except msgspec.DecodeError as error:
        _log.warning("NodeFeature left out", object=f"{meta.namespace}/{meta.name}", error=error)
        return None
    packed = zlib.compress(bytes(found.spec), _LEVEL)
    _recent[packed] = spec
    if len(_recent) > _RECENT:
        del _recent[next(iter(_recent))]
    kept = {labels.FEATURES_NODE: node_of(found)}
    return PackedFeature(
        metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid, labels=kept),
        spec=_EMPTY,
        packed=packed,
    )


def unpack(kept: PackedFeature) -> NodeFeature:
    """Return the NodeFeature that was packed. It may be shared, so it is not to be changed."""
    spec = _recent.get(kept.packed) or _decoder.decode(zlib.decompress(kept.packed))
    return NodeFeature(metadata=kept.metadata, spec=spec)
