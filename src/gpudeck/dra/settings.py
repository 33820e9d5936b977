# SPDX-License-Identifier: Apache-2.0
"""Settings of the process dra-plugin."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from gpudeck.settings import NodeSettings, setting


@dataclasses.dataclass(frozen=True)
class Settings(NodeSettings):
    """The folders are the kubelet's, at the same paths as on the node."""

    pod_uid: str = setting("", "UID of this pod; lets old and new pod of an update serve at once.")
    data_dir: Path = setting(
        Path("/var/lib/kubelet/plugins/gpu.deckhouse.io"),
        "Folder of the checkpoint, the plugin's socket and the CDI hook.",
    )
    registry_dir: Path = setting(
        Path("/var/lib/kubelet/plugins_registry"), "Folder where the kubelet looks for plugins."
    )
    pod_resources: Path = setting(
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        "Socket where the kubelet tells which claims its pods use.",
    )
    forgotten_seconds: float = setting(
        300.0, "How long a claim must have been forgotten by all before it is given back."
    )
    cdi_root: Path = setting(Path("/var/run/cdi"), "Folder where the runtime looks for CDI specs.")
    adapter_socket: Path = setting(
        Path("/run/gpudeck/adapter.sock"), "Socket of the maker's adapter."
    )
    share_memory: str = setting(
        "4Gi", "Memory of a share whose claim and class name no amount, as a quantity."
    )
    device_metadata: bool = setting(
        True, "Whether containers are told of their devices by files (KEP-5304)."
    )
    unhealthy_effect: str = setting(
        "NoSchedule",
        "Effect of the taint of unhealthy cards: NoSchedule keeps new pods away, "
        "NoExecute also ends those that run.",
    )
    cdi_hook: Path = setting(
        Path("/usr/bin/nvidia-cdi-hook"),
        "Program for CDI hooks, copied to the node if it is in the image.",
    )
