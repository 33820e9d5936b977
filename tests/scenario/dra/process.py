# SPDX-License-Identifier: Apache-2.0
"""Run the plugin as a process of its own: settings from the environment, as in its pod."""

from __future__ import annotations

import asyncio

from gpudeck import logs, settings
from gpudeck.dra import main
from gpudeck.dra.settings import Settings

if __name__ == "__main__":
    logs.configure("info")
    asyncio.run(main.run(settings.load(Settings, {})))
