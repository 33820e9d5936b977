# SPDX-License-Identifier: Apache-2.0
"""Settings of `gpudeck adapter <vendor>`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from gpudeck.settings import CardSettings, LogSettings, setting


@dataclasses.dataclass(frozen=True)
class Settings(CardSettings, LogSettings):
    """The adapter has no access to the API server, so none of its settings are here."""

    vendor: str = setting("nvidia", "Maker whose cards are served: nvidia.")
    socket: Path = setting(
        Path("/run/gpudeck/adapter.sock"), "Unix socket to serve on; its folder must exist."
    )
    host_root: Path = setting(Path("/"), "The host's root as this process sees it.")
    host_root_on_node: str = setting("/", "The host's root as the container runtime sees it.")
    runtime_socket: str = setting(
        "", "Socket of the container runtime (CRI), asked what containers have; empty: not asked."
    )
