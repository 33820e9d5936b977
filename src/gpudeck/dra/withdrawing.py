# SPDX-License-Identifier: Apache-2.0
"""Whether this node's cards are still to be offered by DRA. Pure.

The controller taints a Node whose mode changes, with the mode that comes. From then on no
new claim may get a card here: `publishing` takes the offer away, while what is held is served
on until it is given back. A change of mind brings the offer back.
"""

from __future__ import annotations

from gpudeck.api import labels
from gpudeck.api.core import Node


def is_leaving(node: Node | None) -> bool:
    """Say whether the Node changes to another mode than DRA."""
    taints = (node.spec.taints if node is not None and node.spec else None) or ()
    return any(each.key == labels.MODE_CHANGE and each.value != labels.MODE_DRA for each in taints)
