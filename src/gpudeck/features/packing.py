# SPDX-License-Identifier: Apache-2.0
"""NodeFeatures as the master holds them: in parts, each held once for all nodes that have it.

One has a hundred kilobytes of text and, as objects, a megabyte: the options of its kernel
alone are some thousand strings. But nodes have most of their features in common, word by word.
So each feature is a part, compressed, and found again by what it says; what was unpacked of one
node lately serves the others.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from gpudeck import logs
from gpudeck.api import labels
from gpudeck.api.meta import ObjectMeta, Wire
from gpudeck.api.nodefeatures import (
    Attributes,
    Features,
    Flags,
    Instances,
    NodeFeature,
    NodeFeatureSpec,
)

_LEVEL = 1  # Three quarters of what the slowest level saves, in a tenth of its time.
_LATELY_BYTES = 4 << 20
"""Text of the parts that stay unpacked: as objects some 30 MB, and a few hundred kilobytes where
nodes are alike."""
_EMPTY = msgspec.Raw(b"null")
_LABELS = "labels"
_log = logs.get(__name__)


class Part(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """One feature, or all labels, of a NodeFeature; equal ones are the same object."""

    kind: str
    """As the field of `Features` is named, or `labels`."""
    name: str
    size: int
    packed: bytes


class PackedFeature(Wire):
    """A NodeFeature as it comes (`spec`) and as it is kept (`parts`)."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    parts: tuple[Part, ...] = ()


class _Features(Wire):
    flags: dict[str, msgspec.Raw] | None = None
    attributes: dict[str, msgspec.Raw] | None = None
    instances: dict[str, msgspec.Raw] | None = None


class _Spec(Wire):
    features: _Features | None = None
    labels: msgspec.Raw = _EMPTY


_decoder = msgspec.json.Decoder(_Spec)
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    "flags": msgspec.json.Decoder(Flags),
    "attributes": msgspec.json.Decoder(Attributes),
    "instances": msgspec.json.Decoder(Instances),
    _LABELS: msgspec.json.Decoder(dict[str, str] | None),
}
_known: weakref.WeakValueDictionary[bytes, Part] = weakref.WeakValueDictionary()
"""All parts that are held somewhere, by what they say."""


def node_of(found: PackedFeature) -> str:
    """What its label says of its node's name; empty if there is no such label."""
    return (found.metadata.labels or {}).get(labels.FEATURES_NODE, "")


def size(kept: PackedFeature) -> int:
    """Bytes of text of what a NodeFeature says."""
    return sum(part.size for part in kept.parts)


def pack(found: PackedFeature) -> PackedFeature | None:
    """Return what is kept of one that has just come; None if it cannot be read or used."""
    meta = found.metadata
    if not node_of(found):
        return None
    try:
        parts = tuple(_part(*each) for each in _pieces(_decoder.decode(found.spec)))
    except msgspec.DecodeError as error:
        _log.warning("NodeFeature left out", object=f"{meta.namespace}/{meta.name}", error=error)
        return None
    kept = {labels.FEATURES_NODE: node_of(found)}
    return PackedFeature(
        metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid, labels=kept),
        spec=_EMPTY,
        parts=parts,
    )


def unpack(kept: PackedFeature) -> NodeFeature:
    """Return the NodeFeature that was packed. Its parts are shared, so it is not to be changed."""
    found: dict[str, dict[str, Any]] = {}
    for part in kept.parts:
        found.setdefault(part.kind, {})[part.name] = _lately.get(part)
    given = found.pop(_LABELS)[""]
    return NodeFeature(
        metadata=kept.metadata, spec=NodeFeatureSpec(features=Features(**found), labels=given)
    )


def _pieces(spec: _Spec) -> Iterator[tuple[str, str, msgspec.Raw]]:
    for kind in _Features.__struct_fields__:
        for name, raw in (getattr(spec.features, kind, None) or {}).items():
            yield kind, name, raw
    yield _LABELS, "", spec.labels


def _part(kind: str, name: str, raw: msgspec.Raw) -> Part:
    """The part that says this. DecodeError if it makes no sense."""
    text = bytes(raw)
    key = hashlib.blake2b(f"{kind} {name}\0".encode() + text, digest_size=16).digest()
    held = _known.get(key)
    if held is None:
        _DECODERS[kind].decode(text)  # What cannot be read is told now.
        held = _known[key] = Part(kind, name, len(text), zlib.compress(text, _LEVEL))
    return held


class _Lately:
    """Parts that were asked for lately, unpacked."""

    def __init__(self) -> None:
        self._held: dict[Part, Any] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, part: Part) -> Any:
        """What a part says."""
        with self._lock:
            return self._get(part)

    def _get(self, part: Part) -> Any:
        if part in self._held:
            value = self._held.pop(part)
        else:
            value = _DECODERS[part.kind].decode(zlib.decompress(part.packed))
            self._bytes += part.size
        self._held[part] = value  # The last of all.
        while self._bytes > _LATELY_BYTES:
            oldest = next(iter(self._held))
            del self._held[oldest]
            self._bytes -= oldest.size
        return value


_lately = _Lately()
