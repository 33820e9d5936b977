# SPDX-License-Identifier: Apache-2.0
"""Settings of the process device-plugin."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from gpudeck.pluginconfig.settings import ConfigSettings
from gpudeck.settings import CardSettings, setting


@dataclasses.dataclass(frozen=True)
class Settings(CardSettings, ConfigSettings):
    """Without a node name nothing is asked of an API server; the config is then a file, or empty.

    What a config says of `mig_strategy` and `device_list_strategy` has precedence over both.
    """

    vendor: str = setting("nvidia", "Maker whose cards are offered: nvidia.")
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
