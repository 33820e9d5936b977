# SPDX-License-Identifier: Apache-2.0
"""Settings of the process controller."""

from __future__ import annotations

import dataclasses

from gpudeck.settings import KubeSettings, setting


@dataclasses.dataclass(frozen=True)
class Settings(KubeSettings):
    """What a replica of the controller is told."""

    namespace: str = setting("", "Namespace of the lease; empty takes the namespace of the pod.")
    identity: str = setting("", "Name of this replica in the lease; empty takes the host's name.")
    lost_seconds: float = setting(
        60.0, "How long a card that is gone and that no claim names keeps its PhysicalGPU."
    )
    unattended_seconds: float = setting(
        30.0,
        "How long the cards of a node without a Ready adapter still count as offered, in seconds.",
    )
    count_seconds: float = setting(
        1.0, "How often the counts of a GPUClass are written at most, in seconds."
    )
    webhook_port: int = setting(
        0, "Port of the admission webhooks, over TLS; 0 serves and registers none."
    )
    refuse_impossible: bool = setting(
        True, "Refuse what no card of the cluster could serve; false only warns of it."
    )
    partition_classes: str = setting(
        "None",
        "Auto makes a GPUClass for each profile of partitions that cards have, None makes none.",
    )
    default_mode: str = setting(
        "device-plugin",
        "How the cards of a Node without the label gpu.deckhouse.io/mode are handed out: "
        "dra or device-plugin.",
    )
    node_workloads: str = setting(
        "",
        "ConfigMap with the templates of the DaemonSets of node groups; empty leaves nodes alone.",
    )
    default_mig_config: str = setting(
        "",
        "MIG config of nodes without the label nvidia.com/mig.config, as mig-manager has it; empty "
        "has a node that leaves all groups with MIG get whole cards again.",
    )
    mig_manager: bool = setting(
        True,
        "Whether nvidia-mig-manager is deployed; false gives nodes back that it has left in the "
        "middle of a change.",
    )
    mode_changes: int = setting(
        1,
        "Nodes that change their mode at the same time because --default-mode has changed; those "
        "with the label do not count.",
    )
    mode_seconds: float = setting(
        600.0, "How long a node may take for another mode before an Event says so, in seconds."
    )
    workers: int = setting(8, "PhysicalGPUs that are written at the same time.")
