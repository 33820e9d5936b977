# SPDX-License-Identifier: Apache-2.0
"""`gpudeck mps-control`: the process in which the control daemons of a node live.

It keeps no state of its own and may be killed at any instruction; the daemons end with it,
and are started again by the next one. One at a time serves a node: the lock decides.
"""

from __future__ import annotations

from gpudeck import logs
from gpudeck.host import locks
from gpudeck.host import root as host
from gpudeck.vendors.nvidia.mps import control, daemons, places
from gpudeck.vendors.nvidia.mps.settings import Settings

log = logs.get(__name__)

_PREDECESSOR_SECONDS = 60.0


async def run(settings: Settings) -> None:
    """Keep daemons until cancelled. Raises BusyError where another one serves the node."""
    root = host.Root(settings.host_root)
    async with locks.held(places.lock(root), deadline_seconds=_PREDECESSOR_SECONDS):
        log.info("Keeping MPS daemons", folder=places.FOLDER)
        await daemons.Daemons(root, control.Control(root, shm_mebibytes=settings.shm_mib)).run()
