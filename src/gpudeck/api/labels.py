# SPDX-License-Identifier: Apache-2.0
"""Every label, annotation, finalizer and field manager of gpudeck, each written once."""

from __future__ import annotations

GROUP = "gpu.deckhouse.io"
DRIVER = "gpu.deckhouse.io"
"""Name of the DRA driver, of its socket folders and of the domain of its device attributes."""

NODE = "gpu.deckhouse.io/node"
"""On PhysicalGPU: the name of its node."""
VENDOR = "gpu.deckhouse.io/vendor"
"""On Node and PhysicalGPU: the maker, e.g. nvidia."""
SHARE_MEMORY = "gpu.deckhouse.io/share-memory"
"""On Node: memory of a share for which neither claim nor class names an amount, e.g. 8Gi."""
DEVICE = "gpu.deckhouse.io/device"
"""On PhysicalGPU: the model as a label value, e.g. h100-sxm5-80gb."""
MIG_MODE = "gpu.deckhouse.io/mig-mode"
"""On Node, and before it on PhysicalGPU: enabled or disabled, the partition mode of cards that
need a reset for it, as an administrator wants it."""
MODE = "gpu.deckhouse.io/mode"
"""On Node: how an administrator wants its cards handed out, dra or device-plugin; without it the
cluster's default counts."""
ACTIVE_MODE = "gpu.deckhouse.io/active-mode"
"""On Node: the mode that is in force, which the node's workloads select. Written by the controller
alone; absent while one mode has ended and the other has not begun."""
MODE_DRA, MODE_DEVICE_PLUGIN = "dra", "device-plugin"
MODES = (MODE_DRA, MODE_DEVICE_PLUGIN)
"""What the two labels may say."""
MODE_CHANGE = "gpu.deckhouse.io/mode-change"
"""Key of the taint of a Node whose mode is changing, with the mode that comes as its value."""
NODE_GROUP = "gpu.deckhouse.io/node-group"
"""On Node: the group whose device plugin and labels it gets. Written by the controller alone."""
DRAIN = "gpu.deckhouse.io/drain"
"""Annotation of a Node: the pods that a process of the node wants evicted, and why, as JSON."""
PAUSED_FOR_MIG = "paused-for-mig-change"
"""Value of such a label while the cards are being partitioned."""
DRAIN_BLOCKED = "gpu.deckhouse.io/drain-blocked"
"""Annotation of a Node: why a pod that is to go cannot be evicted now, as a sentence."""
DRAINED = "gpu.deckhouse.io/drained"
"""Annotation of a Node: the id of the request of which no pod is left, as the controller says."""
CARD = "gpu.deckhouse.io/card"
"""On DeviceTaintRule: the PhysicalGPU that it keeps new pods off, as a label value."""
REASON = "gpu.deckhouse.io/reason"
"""Annotation of a DeviceTaintRule: why, in an administrator's words."""
SHIPPED = "gpu.deckhouse.io/shipped"
"""On GPUClass: "true" where gpudeck made it by itself."""
CORDONED = "gpu.deckhouse.io/cordoned"
"""Key of the device taint of a card that an administrator takes out of use."""
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY_GPUDECK = "gpudeck"

COMPONENT = "app.kubernetes.io/component"
"""On pods: which workload of gpudeck they are of. On NodeFeatures of GPU labels: DISCOVERY."""
DISCOVERY = "gpu-feature-discovery"
ADAPTERS = ("nvidia-adapter", "nvidia-device-plugin")
"""The workloads whose pods offer cards."""

MANAGER_NODE_AGENT = "gpudeck-node-agent"
MANAGER_ADAPTER = "gpudeck-adapter"
MANAGER_DRA_PLUGIN = "gpudeck-dra-plugin"
MANAGER_PUBLISHER = MANAGER_DRA_PLUGIN
"""Of what cards are offered as, in both modes: the first word of a mode takes the place of the
last one of the other."""
MANAGER_DEVICE_PLUGIN = "gpudeck-device-plugin"
MANAGER_CONTROLLER = "gpudeck-controller"
MANAGER_NODE_GROUPS = "gpudeck-node-groups"
"""The controller's too, for DaemonSets, configs and node labels of groups: all fields of this
manager on a Node are of its group, so that they go when the node leaves it."""
MANAGER_CLI = "gpudeck-cli"
MANAGER_FEATURES_WORKER = "gpudeck-features-worker"
MANAGER_FEATURES_MASTER = "gpudeck-features-master"
MANAGER_GFD = "gpudeck-gfd"
MANAGER_MIG_MANAGER = "gpudeck-mig-manager"

MIG_CONFIG = "nvidia.com/mig.config"
"""On Node: the name of the config by which its cards are partitioned."""
MIG_STATE = "nvidia.com/mig.config.state"
"""On Node: pending, rebooting, success or failed; what became of the config. Who removes it has
a change that failed tried again."""
MIG_CHANGE = "gpu.deckhouse.io/mig-change"
"""Annotation of a Node: how far the change of its partitions has come, as JSON."""
MIG_TAINT = "mig-reconfigure"
"""Key of the taint of a Node whose cards are being partitioned; its value is true."""
DEPLOY = "nvidia.com/gpu.deploy."
"""Beginning of labels of a Node that let a workload of its cards run there, or keep it off."""
PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
"""On Node: the name of the config that its GPU resources follow."""
ORDERS = (f"{GROUP}/", "node.deckhouse.io/", MIG_CONFIG, PLUGIN_CONFIG, DEPLOY)
"""Beginnings of the labels of a Node by which gpudeck is told what to do there: mode, layout,
group, config, workloads. Two domains are here whole, lest one be forgotten; the rest are facts."""
DISRUPTION_REQUIRED = "update.node.deckhouse.io/disruption-required"
"""Annotation of a Node: a reboot waits for somebody's leave (Deckhouse)."""
DISRUPTION_APPROVED = "update.node.deckhouse.io/disruption-approved"

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
SUPPORTED_VENDORS = "gpu-supported-vendors"
"""Name of the ConfigMap that says which PCI vendors are GPUs of interest."""

NODE_WORKLOADS = "gpu-node-workloads"
"""Name of the ConfigMap with the templates of which each node group gets its DaemonSets."""
GROUP_CONFIGS_READER = "gpu-node-groups"
"""Name of the Role by which the processes of nodes read the configs of node groups."""
GROUP_MIG_CONFIGS = "nvidia-mig-custom-configs"
"""Name of the ConfigMap with the MIG configs that node groups describe themselves; its key is
config.yaml."""

FEATURE_NAMESPACE = "feature.node.kubernetes.io"
"""What names of node features get that carry no namespace of their own."""
PROFILE_NAMESPACE = "profile.node.kubernetes.io"
FEATURES_NODE = "nfd.node.kubernetes.io/node-name"
"""On NodeFeature: the name of the Node that it speaks of."""
FEATURES_OF_GPUS = "nvidia-features-for-"
"""What the name of the NodeFeature of a Node's GPU labels begins with; the Node's name follows."""
FEATURES_LABELS = "nfd.node.kubernetes.io/feature-labels"
"""Annotations of a Node: which labels, annotations, taints and extended resources of it were
written from its features, so that they go when their reason goes, and others stay."""
FEATURES_ANNOTATIONS = "nfd.node.kubernetes.io/feature-annotations"
FEATURES_RESOURCES = "nfd.node.kubernetes.io/extended-resources"
FEATURES_TAINTS = "nfd.node.kubernetes.io/taints"
FEATURES_MASTER_VERSION = "nfd.node.kubernetes.io/master.version"
FEATURES_WORKER_VERSION = "nfd.node.kubernetes.io/worker.version"
