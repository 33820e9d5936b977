# SPDX-License-Identifier: Apache-2.0
"""Settings of `gpudeck mps-control`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from gpudeck.settings import LogSettings, setting


@dataclasses.dataclass(frozen=True)
class Settings(LogSettings):
    """The process speaks to no API server and to no other process of gpudeck."""

    host_root: Path = setting(Path("/"), "The host's root as this process sees it.")
    shm_mib: int = setting(1024, "Most memory in /dev/shm of a card's daemon and clients, MiB.")
