# SPDX-License-Identifier: Apache-2.0
"""Settings of the process node-agent."""

from __future__ import annotations

import dataclasses

from gpudeck.settings import NodeSettings, setting


@dataclasses.dataclass(frozen=True)
class Settings(NodeSettings):
    """Of one node; the host is only read."""

    namespace: str = setting("", "Namespace of gpu-supported-vendors; empty means the pod's own.")
    scan_seconds: float = setting(30.0, "Longest time between two looks at the PCI bus.")
    poll_seconds: float = setting(
        1.0, "Time between two cheap looks where the kernel's events are not to be had."
    )
