# SPDX-License-Identifier: Apache-2.0
"""What other programs take for the same jobs, by the keys of our figures.

Measured beforehand on a machine of the same kind (two CPUs, Kubernetes 1.37.2, eight cards of
a mock NVML library in C), each program built unchanged from its source: dra-driver-nvidia-gpu
95932046 (the program gpu-kubelet-plugin) and node-feature-discovery 76e6cc8c (nfd-worker).
Median [least..most] of three processes or more.
"""

from __future__ import annotations

import msgspec


class Peer(msgspec.Struct, frozen=True):
    """What a peer takes: its median in the unit of our figure, its spread, its name."""

    median: float
    text: str
    name: str = "NVIDIA DRA driver"


FIGURES: dict[str, Peer] = {
    "plugin_start": Peer(1.80, "1.80 [1.46..3.10]"),
    "plugin_pod_plugin": Peer(1.80, "1.80 [1.46..3.10]"),
    "plugin_pod_adapter": Peer(1.80, "1.80 [1.46..3.10]"),
    "floor_p50": Peer(0.20, "0.20 [0.20..0.21]", "device plugin, empty call"),
    "floor_p99": Peer(0.53, "0.53 [0.47..0.63]", "device plugin, empty call"),
    "prepare_paced_p50": Peer(14.9, "14.9 [12.4..15.0]"),
    "prepare_paced_p99": Peer(28.4, "28.4 [18.8..48.5]"),
    "again_paced_p50": Peer(7.3, "7.3 [5.9..8.3]"),
    "again_paced_p99": Peer(15.7, "15.7 [8.4..110]"),
    "unprepare_paced_p50": Peer(4.0, "4.0 [3.6..4.4]"),
    "unprepare_paced_p99": Peer(7.7, "7.7 [6.0..16.9]"),
    "prepare_batch_p50": Peer(200.5, "200.5 [200.5..201.2]"),
    "prepare_batch_p99": Peer(209, "209 [208..210]"),
    "unprepare_batch_p50": Peer(4.6, "4.6 [4.4..4.7]"),
    "unprepare_batch_p99": Peer(25.2, "25.2 [22.9..41.8]"),
    "node-agent_pss": Peer(39.8, "39.8", "nfd-worker"),
    "node-agent_rss": Peer(39.8, "39.8 [39.0..39.9]", "nfd-worker"),
    "node-agent_anonymous": Peer(8.3, "8.3", "nfd-worker"),
    "node-agent_cpu": Peer(0.035, "0.035 [0.035..0.042]", "nfd-worker"),
    "plugin_adapter_pss": Peer(71.9, "71.9 [70.3..73.2]"),
    "plugin_adapter_rss": Peer(73.1, "73.1 [71.5..74.5]"),
    "plugin_adapter_anonymous": Peer(19.5, "19.5"),
    "plugin_adapter_cpu": Peer(0.0058, "0.0058 [0.0054..0.0070]"),
    "node_pss": Peer(111.7, "71.9 + 39.8", "NVIDIA DRA driver and nfd-worker"),
    "node_rss": Peer(112.9, "73.1 + 39.8", "NVIDIA DRA driver and nfd-worker"),
    "node_anonymous": Peer(27.8, "19.5 + 8.3", "NVIDIA DRA driver and nfd-worker"),
    "node_cpu": Peer(0.041, "0.0058 + 0.035", "NVIDIA DRA driver and nfd-worker"),
    "pod_with_card": Peer(0.71, "0.71 [0.57..1.06]"),
    "pod_without": Peer(0.84, "0.84 [0.54..0.97]", "the same cluster"),
}
