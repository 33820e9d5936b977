# SPDX-License-Identifier: Apache-2.0
"""Settings of the process mig-manager."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from gpudeck.api import labels
from gpudeck.settings import NodeSettings, setting


@dataclasses.dataclass(frozen=True)
class Settings(NodeSettings):
    """Configs are looked for in the order of the ConfigMaps here; the cards' own come third."""

    vendor: str = setting("nvidia", "Maker whose cards are partitioned: nvidia.")
    namespace: str = setting("", "Namespace of the ConfigMaps; empty means the pod's own.")
    config_map: str = setting(
        "", "ConfigMap with an administrator's configs; empty: there is none."
    )
    group_config_map: str = setting(
        labels.GROUP_MIG_CONFIGS, "ConfigMap with the configs of node groups."
    )
    default_config_map: str = setting(
        "default-mig-parted-config", "ConfigMap with the configs for all models."
    )
    gpu_clients_config_map: str = setting(
        "",
        "ConfigMap with the services of the host that have cards open, in its key clients.yaml; "
        "empty: there are none.",
    )
    default_config: str = setting("", "Name of the config of nodes for which nobody chose one.")
    pod_resources: str = setting(
        "/var/lib/kubelet/pod-resources/kubelet.sock", "Socket where the kubelet tells of pods."
    )
    plugins_dir: Path = setting(
        Path("/var/lib/kubelet/device-plugins"),
        "Folder where the kubelet keeps which devices it gave to containers.",
    )
    pod_logs: Path = setting(
        Path("/var/log/pods"), "Folder where the kubelet keeps the logs of pods."
    )
    drain_seconds: float = setting(
        600.0, "Seconds within which pods that hold what is to change have to end."
    )
    pause_seconds: float = setting(
        300.0, "Seconds within which workloads that have the cards open have to end."
    )
    change_seconds: float = setting(
        600.0, "Seconds for which a change is tried again while the driver is away."
    )
    reboot: bool = setting(False, "Whether the node may be rebooted where cards need it.")
    reboot_approval: bool = setting(
        False,
        "Whether a reboot waits for the Node's annotation "
        "update.node.deckhouse.io/disruption-approved.",
    )
    reboot_seconds: float = setting(900.0, "Seconds within which a reboot has to happen.")
    trace_seconds: float = setting(
        2.0, "Seconds between two looks at what the node shows of driver and partitions."
    )
