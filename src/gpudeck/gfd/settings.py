# SPDX-License-Identifier: Apache-2.0
"""Settings of the process gfd. Flags and GFD_ variables are gpu-feature-discovery's.

A setting that is empty is taken from the config, and from `options` where that is silent. The
MIG strategy is the device plugin's as well, so there the config has precedence (`pluginconfig`).
"""

from __future__ import annotations

import dataclasses

from gpudeck.pluginconfig.settings import ConfigSettings
from gpudeck.settings import setting


@dataclasses.dataclass(frozen=True)
class Settings(ConfigSettings):
    """Of one node. The API server is not spoken to where the labels go to a file."""

    fail_on_init_error: str = setting(
        "",
        "Whether one pass without a usable driver is an error.",
        also=("GFD_FAIL_ON_INIT_ERROR", "FAIL_ON_INIT_ERROR"),
    )
    oneshot: str = setting("", "Write the labels once and end.", also=("GFD_ONESHOT",))
    no_timestamp: str = setting(
        "", "Leave the label gfd.timestamp out.", also=("GFD_NO_TIMESTAMP",)
    )
    sleep_interval: str = setting(
        "",
        "Longest time between two writes, as 60s or infinite; changes are written at once.",
        also=("GFD_SLEEP_INTERVAL",),
    )
    output_file: str = setting("", "File of labels, a path of the host.", also=("GFD_OUTPUT_FILE",))
    machine_type_file: str = setting(
        "", "File of the host with the machine's type.", also=("GFD_MACHINE_TYPE_FILE",)
    )
    use_node_feature_api: str = setting(
        "",
        "Whether the labels go to a NodeFeature; else to the output file.",
        also=("GFD_USE_NODE_FEATURE_API", "USE_NODE_FEATURE_API"),
    )
    plugin_state: str = setting(
        "",
        "File where the node's device plugin keeps its last good config, so that labels tell of "
        "that one while the one that was chosen is wrong; empty: none.",
    )
    pod_name: str = setting("", "Name of this pod, for the owners of the NodeFeature; or empty.")
    vendor: str = setting("nvidia", "Maker whose cards are labelled.")
    look_seconds: float = setting(
        0.5, "Time between two looks at the files that show a change of driver, MIG or config."
    )
    poll_seconds: float = setting(10.0, "Longest time between two readings of all cards.")
    mig_seconds: float = setting(1.5, "The same while a card has a MIG mode, which may change.")
    hold_seconds: float = setting(
        300.0, "How long labels stay while the driver of cards that are there is away."
    )
