# SPDX-License-Identifier: Apache-2.0
"""What a process of a node writes on its Node to have pods evicted. Pure.

The annotation gpu.deckhouse.io/drain names the pods, with their UIDs where they are known, or
says that all of the node are meant. Who wrote it sees the pods go, or waits for the annotation
gpu.deckhouse.io/drained to say the request's id, and takes it away when it has seen enough;
`reconciler` obeys as long as it is there.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gpudeck import errors
from gpudeck.api import labels
from gpudeck.api.meta import Wire

MOST = 200
"""Pods of one request: more than twice as many as a node has by default."""
_FIELD = f"annotation {labels.DRAIN}"
_ALLOWED = (
    'JSON of the form {"by": "…", "why": "…", "pods": [{"namespace": "…", "name": "…", '
    f'"uid": "…"}}]}} with at most {MOST} pods, or with "all": true in place of them'
)
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class Pod(Wire):
    """A pod that is to go."""

    namespace: _Text
    name: _Text
    uid: Annotated[str, msgspec.Meta(max_length=253)] = ""
    """May be left out: the kubelet does not tell the processes of its node."""


class Request(Wire):
    """Who wants which pods to go, and why, as the end of a sentence."""

    pods: Annotated[list[Pod], msgspec.Meta(max_length=MOST)] | msgspec.UnsetType = msgspec.UNSET
    all: bool = False
    """Every pod of the node, but for those that come back at once."""
    id: Annotated[str, msgspec.Meta(max_length=63)] = ""
    """Told back when none of them is left."""
    by: Annotated[str, msgspec.Meta(max_length=63)] = ""
    why: Annotated[str, msgspec.Meta(max_length=1024)] = ""


_decoder = msgspec.json.Decoder(Request)


def read(text: str) -> Request:
    """Read the annotation. Raises InvalidError (DrainInvalid) that says what would do."""
    try:
        found = _decoder.decode(text)
        if found.pods is msgspec.UNSET and not found.all:
            raise msgspec.ValidationError("neither `pods` nor `all` is there")
        return found
    except (msgspec.DecodeError, RecursionError) as error:
        raise errors.InvalidError(
            f"{_FIELD}: {error}; allowed: {_ALLOWED}",
            reason="DrainInvalid",
            field=_FIELD,
            allowed=_ALLOWED,
        ) from error
