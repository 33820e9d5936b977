# SPDX-License-Identifier: Apache-2.0
"""What the DRA plugin says about a card in its own name: that it is offered, and how.

Pure; `reporting` writes it, beside what the adapter says (`statuses.cards`).
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import attributes, conditions, names, resource
from gpudeck.api.meta import Condition
from gpudeck.api.v1alpha1 import physicalgpu
from gpudeck.devices.identities import PciAddress
from gpudeck.dra import offering, tainting
from gpudeck.statuses import cards

_WITHHELD = "Withheld"
_LEAVING = "The node leaves DRA mode: new claims get no card here."


def published_status(
    card: adapter_pb2.Card | None,
    published: Mapping[str, resource.Device],
    pool: str,
    *,
    rejection: str = "",
    parts_withheld: bool = False,
    is_withdrawn: bool = False,
    applied: Condition | None = None,
) -> physicalgpu.PhysicalGPUStatus:
    """The fields of the manager gpudeck-dra-plugin: the condition Published, and `applied`.

    `rejection` is why the API server takes no slices at all, empty if it does;
    `parts_withheld` says that it does not let wanted or held parts of the card be offered;
    `is_withdrawn` that the node leaves DRA mode;
    `applied` is the condition PartitioningApplied, None where no mode was chosen for the card.
    """
    condition = _published(card, published, pool)
    if parts_withheld:
        condition = _without_parts(condition)
    if rejection and condition.reason == _WITHHELD:
        condition = cards.not_published("ResourceSlicesRejected", rejection)
    if is_withdrawn:
        condition = cards.not_published(conditions.MODE_CHANGING, _LEAVING)
    return physicalgpu.PhysicalGPUStatus(conditions=[condition, *([applied] if applied else [])])


def _published(
    card: adapter_pb2.Card | None, published: Mapping[str, resource.Device], pool: str
) -> Condition:
    if card is None:
        return cards.absent()
    address = PciAddress.parse(card.pci_address)
    mine = [each for name, each in published.items() if names.address_of_device(name) == address]
    if not mine:
        refusal = offering.refusal(card, published)
        if refusal is not None:
            return cards.not_published(refusal.reason, refusal.message)
        return cards.not_published(
            _WITHHELD,
            "The card is unhealthy or about to change its partitioning mode, and the API server "
            "does not keep device taints.",
        )
    taint = " It is tainted as unhealthy." if tainting.is_tainted(mine[0]) else ""
    if tainting.is_kept_off(mine[0]):
        taint += " New claims are kept off it until its partitioning mode has changed."
    return Condition(
        type=conditions.PUBLISHED,
        status=conditions.TRUE,
        reason="Published",
        message=f"Offered in pool {pool}: {_told(mine)}.{taint}",
    )


def _without_parts(condition: Condition) -> Condition:
    if condition.reason == _WITHHELD:
        return cards.not_published(
            conditions.PARTS_WITHHELD,
            f"A claim holds a part of the card, and {conditions.PARTS_UNGUARDED}, so nothing of "
            "the card is offered until the claim is gone.",
        )
    if condition.status != conditions.TRUE:
        return condition
    return Condition(
        type=conditions.PUBLISHED,
        status=conditions.TRUE,
        reason=conditions.PARTS_WITHHELD,
        message=f"{condition.message} Parts that GPUClasses select are not offered: "
        f"{conditions.PARTS_UNGUARDED}.",
    )


def _told(mine: Iterable[resource.Device]) -> str:
    """What kinds of devices a card is offered as: `whole, 25 places for partitions`."""
    kinds = collections.Counter(
        named.type for each in mine if (named := names.parse_device(each.name)) is not None
    )
    said = []
    if kinds[attributes.TYPE_GPU]:
        said.append("whole")
    if places := kinds[attributes.TYPE_MIG]:
        said.append("1 place for a partition" if places == 1 else f"{places} places for partitions")
    if kinds[attributes.TYPE_SHARE]:
        said.append("in shares")
    return ", ".join(said)
