# SPDX-License-Identifier: Apache-2.0
"""Which devices pods have now, by all that tells of it; asked by `main` before it offers more.

The kubelet's pod-resources API tells of most. Of what was handed out a moment ago it does not
tell yet, and of devices of init containers never (1.34 to 1.37): its file of devices has those.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Container
from pathlib import Path

from gpudeck.deviceplugin import occupying, offering, serving
from gpudeck.deviceplugin.settings import Settings
from gpudeck.kubelet import checkpoints, holding

WRITTEN_SECONDS = 0.5
"""How long a kubelet may take to write its file after a list was sent."""


async def held(
    settings: Settings, plugins: serving.Plugins, names: Container[str]
) -> occupying.Held:
    """The devices, of cards and partitions with these names where the API is silent of them.

    Raises UnavailableError where the kubelet does not answer.
    """
    if not settings.pod_resources:
        return {}
    found = await holding.held(Path(settings.pod_resources))
    for name, recent in plugins.recent().items():
        found[name] = dict.fromkeys(recent, "") | found.get(name, {})
    for name, untold in (await _untold(settings.plugins_dir, plugins, found, names)).items():
        found[name] = dict.fromkeys(untold, "") | found.get(name, {})
    return found


async def _untold(
    folder: Path, plugins: serving.Plugins, told: occupying.Held, names: Container[str]
) -> dict[str, frozenset[str]]:
    """What the file has besides: of init containers, and of pods that have ended.

    The kubelet has forgotten the latter, for it was just asked; it is made to write that.
    """

    def read() -> dict[str, frozenset[str]]:
        return checkpoints.untold(
            folder, told, concerns=lambda each: offering.unit_of(each) in names
        )

    before = checkpoints.stamp(folder)
    found = await asyncio.to_thread(read)
    if not found or not plugins.repeat():
        return found
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WRITTEN_SECONDS):
            while checkpoints.stamp(folder) == before:  # noqa: ASYNC110 - a file tells nobody.
                await asyncio.sleep(WRITTEN_SECONDS / 50)
    return await asyncio.to_thread(read)
