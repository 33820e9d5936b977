# SPDX-License-Identifier: Apache-2.0
"""What other programs take for the same jobs, by the keys of our figures.

Measured beforehand on a machine of the same kind (two CPUs, Kubernetes 1.37.2, eight cards of
a mock NVML library in C), each program built unchanged from its source: dra-driver-nvidia-gpu
95932046 (the program gpu-kubelet-plugin), node-feature-discovery 76e6cc8c (nfd-worker, -master,
-gc), k8s-device-plugin 1b826acc (nvidia-device-plugin, gpu-feature-discovery) and mig-parted
bd7160f4 (nvidia-mig-parted, nvidia-mig-manager).
Median [least..most] of three processes or more.
"""

from __future__ import annotations

import msgspec


class Peer(msgspec.Struct, frozen=True):
    """What a peer takes: its median in the unit of our figure, its spread, its name."""

    median: float
    text: str
    name: str = "NVIDIA DRA driver"


PLUGIN = "NVIDIA device plugin"

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
    "features_start": Peer(0.33, "0.33 [0.22..0.69]", "nfd-worker -oneshot, exec to its end"),
    "pod_with_card": Peer(0.71, "0.71 [0.57..1.06]"),
    "pod_without": Peer(0.84, "0.84 [0.54..0.97]", "the same cluster"),
    "dp_start": Peer(0.057, "0.057 [0.027..0.13]", PLUGIN),
    "dp_GetDevicePluginOptions_p50": Peer(0.2, "0.20 [0.20..0.21]", PLUGIN),
    "dp_GetDevicePluginOptions_p99": Peer(0.53, "0.53 [0.47..0.63]", PLUGIN),
    "dp_Allocate_1_of_8_p50": Peer(0.26, "0.26 [0.26..0.28]", PLUGIN),
    "dp_Allocate_1_of_8_p99": Peer(0.79, "0.79 [0.66..0.93]", PLUGIN),
    "dp_Allocate_8_of_8_p50": Peer(0.27, "0.27 [0.25..0.28]", PLUGIN),
    "dp_Allocate_8_of_8_p99": Peer(0.68, "0.68 [0.67..0.90]", PLUGIN),
    "dp_Allocate_1_of_80_p50": Peer(0.27, "0.27 [0.27..0.35]", PLUGIN),
    "dp_Allocate_1_of_80_p99": Peer(0.75, "0.75 [0.56..1.12]", PLUGIN),
    "dp_Allocate_8_of_80_p50": Peer(0.29, "0.29 [0.27..0.34]", PLUGIN),
    "dp_Allocate_8_of_80_p99": Peer(1.64, "1.64 [0.76..1.91]", PLUGIN),
    "dp_GetPreferredAllocation_1_of_8_p50": Peer(2.6, "2.60 [2.48..2.70]", PLUGIN),
    "dp_GetPreferredAllocation_1_of_8_p99": Peer(6.6, "6.6 [6.3..7.9]", PLUGIN),
    "dp_GetPreferredAllocation_2_of_8_p50": Peer(2.72, "2.72 [2.63..2.74]", PLUGIN),
    "dp_GetPreferredAllocation_2_of_8_p99": Peer(7.0, "7.0 [6.0..7.1]", PLUGIN),
    "dp_GetPreferredAllocation_4_of_8_p50": Peer(2.76, "2.76 [2.57..2.80]", PLUGIN),
    "dp_GetPreferredAllocation_4_of_8_p99": Peer(6.6, "6.6 [5.7..7.1]", PLUGIN),
    "dp_GetPreferredAllocation_8_of_8_p50": Peer(2.68, "2.68 [2.64..2.72]", PLUGIN),
    "dp_GetPreferredAllocation_8_of_8_p99": Peer(6.1, "6.1 [5.1..6.5]", PLUGIN),
    "dp_GetPreferredAllocation_1_of_80_p50": Peer(0.5, "0.50 [0.46..0.53]", PLUGIN),
    "dp_GetPreferredAllocation_1_of_80_p99": Peer(1.4, "1.4 [1.3..1.8]", PLUGIN),
    "dp_GetPreferredAllocation_2_of_80_p50": Peer(0.6, "0.60 [0.56..0.61]", PLUGIN),
    "dp_GetPreferredAllocation_2_of_80_p99": Peer(1.9, "1.9 [1.5..2.6]", PLUGIN),
    "dp_GetPreferredAllocation_4_of_80_p50": Peer(
        0.94, "0.94 [0.75..0.99]", "NVIDIA device plugin"
    ),
    "dp_GetPreferredAllocation_4_of_80_p99": Peer(2.6, "2.6 [2.6..3.3]", PLUGIN),
    "dp_GetPreferredAllocation_8_of_80_p50": Peer(
        1.14, "1.14 [1.11..1.19]", "NVIDIA device plugin"
    ),
    "dp_GetPreferredAllocation_8_of_80_p99": Peer(3.5, "3.5 [3.0..3.7]", PLUGIN),
    "gfd_file": Peer(0.39, "0.39 [0.30..0.51]", "gpu-feature-discovery"),
    "gfd_api": Peer(0.51, "0.51 [0.32..0.57]", "gpu-feature-discovery"),
    "mig_all": Peer(2.41, "2.41 [1.99..2.76]", "nvidia-mig-parted"),
    "mig_same": Peer(1.06, "1.06 [0.87..1.29]", "nvidia-mig-parted"),
    "mig_assert": Peer(1.24, "1.24 [1.05..1.36]", "nvidia-mig-parted"),
    "mig_other": Peer(1.69, "1.69 [1.35..2.18]", "nvidia-mig-parted"),
    "mig_none": Peer(2.21, "2.21 [1.37..2.40]", "nvidia-mig-parted"),
    "dp_device-plugin_pss": Peer(20.6, "20.6 [20.6..20.7]", PLUGIN),
    "dp_device-plugin_anonymous": Peer(3.0, "3.0", PLUGIN),
    "dp_device-plugin_cpu": Peer(0.0016, "0.0016 [0.0015..0.0018]", PLUGIN),
    "dp_gfd_pss": Peer(55.2, "55.2 [53.5..55.9]", "gpu-feature-discovery"),
    "dp_gfd_anonymous": Peer(17.8, "17.8", "gpu-feature-discovery"),
    "dp_gfd_cpu": Peer(0.443, "0.443 [0.372..0.454]", "gpu-feature-discovery"),
    "dp_features_worker_pss": Peer(39.8, "39.8", "nfd-worker"),
    "dp_features_worker_anonymous": Peer(8.3, "8.3", "nfd-worker"),
    "dp_features_worker_cpu": Peer(0.035, "0.035 [0.035..0.042]", "nfd-worker"),
    "dp_features_master_pss": Peer(45.8, "45.8", "nfd-master"),
    "dp_features_master_anonymous": Peer(9.0, "9.0", "nfd-master"),
    "dp_features_master_cpu": Peer(0.024, "0.024 [0.018..0.034]", "nfd-master"),
    "dp_features_gc_pss": Peer(28.7, "28.7", "nfd-gc"),
    "dp_features_gc_anonymous": Peer(5.5, "5.5", "nfd-gc"),
    "dp_features_gc_cpu": Peer(0.0041, "0.0041 [0.0035..0.0075]", "nfd-gc"),
    "dp_mig-manager_pss": Peer(29.9, "29.9 [29.0..30.0]", "nvidia-mig-manager"),
    "dp_mig-manager_anonymous": Peer(5.2, "5.2", "nvidia-mig-manager"),
    "dp_mig-manager_cpu": Peer(0.0019, "0.0019 [0.0017..0.0045]", "nvidia-mig-manager"),
    "dp_all_of_one_node_pss": Peer(145.5, "20.6 + 55.2 + 39.8 + 29.9", "these four"),
    "dp_all_of_one_node_once": Peer(145.5, "20.6 + 55.2 + 39.8 + 29.9", "these four"),
    "dp_all_of_one_node_anonymous": Peer(34.3, "3.0 + 17.8 + 8.3 + 5.2", "these four"),
    "dp_all_of_one_node_cpu": Peer(0.4815, "0.0016 + 0.443 + 0.035 + 0.0019", "these four"),
}
