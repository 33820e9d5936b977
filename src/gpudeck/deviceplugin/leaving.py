# SPDX-License-Identifier: Apache-2.0
"""What the device plugin takes back when it ends because the node's mode does.

A process that is told to end is mostly one that is replaced: then all stays, for pods go
on. Only where the Node's label says that the mode is over, and nobody holds a device any
more, goes what was made on the node and said of it. A container that is started again
would otherwise not find the CDI name that it was given. Used by `main`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

from gpudeck import errors, logs
from gpudeck.api import labels
from gpudeck.api.meta import Meta
from gpudeck.api.resources import NODE
from gpudeck.cdi import plugins
from gpudeck.deviceplugin import daemons, publishing, reporting
from gpudeck.deviceplugin.settings import Settings
from gpudeck.kube.client import Client
from gpudeck.kubelet import holding
from gpudeck.vendors import contract, records, supervisor

log = logs.get(__name__)

LEAVING_SECONDS = 10.0
"""Within the time that the kubelet leaves a pod that it ends."""


async def is_over(api: Client, settings: Settings) -> bool:
    """Whether the mode of device plugins has ended on the node."""
    try:
        node = await api.get(NODE, settings.node_name, Meta)
    except errors.NotFoundError:
        return True
    except errors.GpudeckError as error:
        log.info("Cannot tell whether the mode is over", error=error)
        return False
    now = (node.metadata.labels or {}).get(labels.ACTIVE_MODE, "")
    return now != labels.MODE_DEVICE_PLUGIN


async def is_held(settings: Settings, resources: frozenset[str]) -> bool:
    """Whether a container has anything of the resources; so too if nobody tells."""
    if not settings.pod_resources:
        return False
    try:
        found = await holding.held(Path(settings.pod_resources))
    except errors.UnavailableError:
        return True
    return not resources.isdisjoint(found)


async def leave(
    settings: Settings,
    inventory: records.Inventory,
    cards: supervisor.Supervisor,
    *,
    reporter: reporting.Reporter,
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
    with _left_behind("files"):
        await asyncio.to_thread(plugins.remove, settings.cdi_root, settings.data_dir)
    with _left_behind("condition of the Node"):
        await reporter.leave()
    if publisher is not None:
        with _left_behind("status of cards"):
            await publisher.leave()
    log.info("The node's mode is over, and nothing of the device plugin is left")


@contextlib.contextmanager
def _left_behind(what: str) -> Iterator[None]:
    try:
        yield
    except errors.GpudeckError as error:
        log.warning("Something is left behind", what=what, error=error)
