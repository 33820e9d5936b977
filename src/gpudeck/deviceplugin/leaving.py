# SPDX-License-Identifier: Apache-2.0
"""What the device plugin takes back when it ends because the node's mode does.

A process that is told to end is mostly one that is replaced: then all stays, for pods go
on. Only where the Node's label says that the mode is over, and nobody holds a device any
more, go the MPS daemons and what was said of the cards. Files and partitions are for whoever
takes the node over, since a process may end at any instant; the condition of the Node is for the
controller, which ends the mode. Used by `main`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from gpudeck import errors, logs
from gpudeck.api import labels
from gpudeck.api.meta import Meta
from gpudeck.api.resources import NODE
from gpudeck.deviceplugin import asking, daemons, offering, publishing, serving, standing
from gpudeck.deviceplugin.settings import Settings
from gpudeck.kube.client import Client
from gpudeck.vendors import contract, records, supervisor

log = logs.get(__name__)

LEAVING_SECONDS = 10.0
"""Within the time that the kubelet leaves a pod that it ends."""


async def known(api: Client, settings: Settings) -> dict[str, str] | None:
    """The labels of the Node as they are now; none of a Node that is gone, None if nobody tells."""
    try:
        node = await api.get(NODE, settings.node_name, Meta)
    except errors.NotFoundError:
        return {}
    except errors.GpudeckError as error:
        log.info("Cannot tell whether the mode is over", error=error)
        return None
    return node.metadata.labels or {}


def is_over(found: Mapping[str, str]) -> bool:
    """Whether the mode of device plugins has ended on a Node with these labels."""
    return found.get(labels.ACTIVE_MODE, "") != labels.MODE_DEVICE_PLUGIN


async def is_held(
    settings: Settings, plugins: serving.Plugins, inventory: records.Inventory
) -> bool:
    """Whether a container has anything of the resources or cards; so too if nobody tells.

    A container may have a card by a name that an earlier config gave it. Nothing is offered any
    more, so that nothing is handed out after the answer.
    """
    readings = [card.reading for card in inventory.cards if card.reading is not None]
    units = {each.uuid for each in readings}
    units |= {part.uuid for each in readings for part in each.partitions}
    plugins.show(standing.Standing())
    try:
        found = await asking.held(settings, plugins, units)
    except errors.UnavailableError:
        return True
    return any(
        name in plugins.served or offering.unit_of(device) in units
        for name, devices in found.items()
        for device in devices
    )


async def leave(
    inventory: records.Inventory,
    cards: supervisor.Supervisor,
    publisher: publishing.Publisher | None,
) -> None:
    """Take all back; what fails is left to whoever begins the next mode."""
    wishes = [
        card.site.address
        for card in inventory.cards
        if card.reading is not None and daemons.SHARE in card.reading.mps_shares
    ]
    for address in wishes:
        with _left_behind("MPS wish"):
            await cards.act(address, contract.LeaveMps(share_id=daemons.SHARE))
    if publisher is not None:
        with _left_behind("status of cards"):
            await publisher.leave()
    log.info("The node's mode is over")


@contextlib.contextmanager
def _left_behind(what: str) -> Iterator[None]:
    try:
        yield
    except errors.GpudeckError as error:
        log.warning("Something is left behind", what=what, error=error)
