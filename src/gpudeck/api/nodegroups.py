# SPDX-License-Identifier: Apache-2.0
"""NodeGroup of `deckhouse.io/v1`, as far as gpudeck reads it; Deckhouse owns the definition.

`spec.gpu` stays as it came: a value that is not as gpudeck wants it is refused with the
path of its field, instead of losing the object in decoding.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gpudeck.api.meta import ObjectMeta, Wire

NODE_GROUP_NAME = "node.deckhouse.io/group"
"""Label of a Node: the NodeGroup that it is of."""


class NodeGroupSpec(Wire):
    gpu: Any = None


class NodeGroup(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: NodeGroupSpec | None = None
