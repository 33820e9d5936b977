# SPDX-License-Identifier: Apache-2.0
"""Settings of the process device-plugin."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from gpudeck.settings import NodeSettings, setting


@dataclasses.dataclass(frozen=True)
class Settings(NodeSettings):
    """Without a node name nothing is asked of an API server; the config is then a file, or empty.

    What a config says of `mig_strategy` and `device_list_strategy` has precedence over both.
    """

    vendor: str = setting("nvidia", "Maker whose cards are offered: nvidia.")
    namespace: str = setting("", "Namespace of the config map; empty means the pod's own.")
    config_map: str = setting("", "ConfigMap with the named configs; empty: there is none.")
    config_file: str = setting("", "File with one config, where there is no ConfigMap.")
    group_config: str = setting("", "Name of the config that the node's group chose.")
    default_config: str = setting("", "Name of the config of nodes for which nobody chose one.")
    config_fallback: tuple[str, ...] = setting(
        ("named", "empty"),
        "What holds where nobody chose, in order: named (the config called default), single "
        "(the only one there is), empty (none).",
    )
    mig_strategy: str = setting(
        "none", "How partitions are named where the config does not say: none, single, mixed."
    )
    device_list_strategy: tuple[str, ...] = setting(
        ("cdi-cri",),
        "How containers are told of their devices where the config does not say: "
        "cdi-cri, cdi-annotations, envvar, volume-mounts.",
    )
    plugins_dir: Path = setting(
        Path("/var/lib/kubelet/device-plugins"), "Folder of the kubelet's socket and of ours."
    )
    pod_resources: str = setting(
        "/var/lib/kubelet/pod-resources/kubelet.sock",
        "Socket where the kubelet tells what pods hold; empty: not asked.",
    )
    data_dir: Path = setting(
        Path("/var/lib/kubelet/plugins/gpu.deckhouse.io"),
        "Folder of the last good config and of the CDI hook, at the same path as on the node.",
    )
    cdi_root: Path = setting(Path("/var/run/cdi"), "Folder where the runtime looks for CDI specs.")
    cdi_hook: Path = setting(
        Path("/usr/bin/nvidia-cdi-hook"),
        "Program for CDI hooks, copied to the node if it is in the image.",
    )
    poll_seconds: float = setting(10.0, "Seconds between two readings of all cards.")
    call_seconds: float = setting(
        5.0, "Seconds after which a reading of a card counts as hung and its process is ended."
    )
