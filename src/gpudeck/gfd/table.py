# SPDX-License-Identifier: Apache-2.0
"""Every label of the process gfd: its name, its value, and when it is there.

docs/reference/node-labels is made of it, and a test holds every label that `labelling`
writes against it. `<model>` and `<profile>` in a name stand for many.
"""

from __future__ import annotations

import re

import msgspec

PREFIX = "nvidia.com/"
GPU = "gpu"
"""The resource of whole cards, and of equal partitions under the strategy single."""
MODEL = "gpu.model."
MIG = "mig-"
TIMESTAMP = "gfd.timestamp"


class Label(msgspec.Struct, frozen=True):
    """One label, without the prefix."""

    name: str
    value: str
    when: str = ""
    """Empty: wherever there is a card that the driver serves."""


_SINGLE = "strategy single, while all cards have equal MIG devices"
_MIXED = "strategy mixed, for each MIG profile in use"
_ATTRIBUTES = (
    ("multiprocessors", "streaming multiprocessors of one device"),
    ("slices.gi", "compute slices of the GPU instance"),
    ("slices.ci", "compute slices of the compute instance; the same"),
    ("engines.copy", "copy engines"),
    ("engines.decoder", "video decoders"),
    ("engines.encoder", "video encoders"),
    ("engines.jpeg", "JPEG engines"),
    ("engines.ofa", "optical flow accelerators"),
)

TABLE: tuple[Label, ...] = (
    Label(
        TIMESTAMP,
        "Unix seconds since when the other labels are as they are",
        "always, unless it is switched off",
    ),
    Label("vgpu.present", "`true` where a card is a virtual GPU, else `false`", "always"),
    Label("vgpu.host-driver-version", "driver of the host that lends it", "on a virtual GPU"),
    Label("vgpu.host-driver-branch", "branch of that driver", "on a virtual GPU"),
    Label("gpu.machine", "type of the machine, `unknown` where it cannot be read"),
    Label("cuda.driver-version.full", "version of the driver"),
    Label("cuda.driver-version.major", "its first part"),
    Label("cuda.driver-version.minor", "its second part"),
    Label("cuda.driver-version.revision", "its third part, or empty"),
    Label("cuda.driver.major", "the same; older name"),
    Label("cuda.driver.minor", "the same; older name"),
    Label("cuda.driver.rev", "the same; older name"),
    Label("cuda.runtime-version.full", "newest CUDA version that the driver serves"),
    Label("cuda.runtime-version.major", "its first part"),
    Label("cuda.runtime-version.minor", "its second part"),
    Label("cuda.runtime.major", "the same; older name"),
    Label("cuda.runtime.minor", "the same; older name"),
    Label("gpu.mode", "`compute` (all cards 3D controllers), `graphics` (all VGA) or `unknown`"),
    Label("gpu.clique", "`<cluster UUID>.<clique>`", "all cards belong to one NVLink fabric"),
    Label("mig.capable", "whether any card has MIG"),
    Label("mig.strategy", "`single` or `mixed`", "strategy single or mixed"),
    Label("mps.capable", "`true` where MPS sharing is configured and no card has MIG enabled"),
    Label(
        "gpu.product",
        "model; `-MIG-<profile>` is added under the strategy single, `-SHARED` where a card is "
        "handed out several times under its own name, `-MIG-INVALID` where the strategy single "
        "cannot be followed",
        "all cards are of one model",
    ),
    Label("gpu.count", "number of cards; under the strategy single of MIG devices, 0 if invalid"),
    Label(
        "gpu.replicas",
        "how often each is handed out: 1 where it is not shared, 0 where only its partitions are",
    ),
    Label("gpu.sharing-strategy", "`none`, `time-slicing` or `mps`; empty if invalid"),
    Label("gpu.memory", "MiB of one card or MIG device, 0 if invalid", "it is the same for all"),
    Label("gpu.family", "architecture, or `undefined`", "it is the same for all"),
    Label("gpu.compute.major", "CUDA compute capability", "it is the same for all"),
    Label("gpu.compute.minor", "CUDA compute capability", "it is the same for all"),
    Label("gpu.model.<model>", "number of cards of that model", "cards are of several models"),
    *(Label(f"gpu.{name}", value, _SINGLE) for name, value in _ATTRIBUTES),
    Label("mig-<profile>.product", "`<model>-MIG-<profile>`, perhaps with `-SHARED`", _MIXED),
    Label("mig-<profile>.count", "number of MIG devices of that profile", _MIXED),
    Label("mig-<profile>.replicas", "how often each is handed out", _MIXED),
    Label("mig-<profile>.sharing-strategy", "`none` or `time-slicing`", _MIXED),
    Label("mig-<profile>.memory", "MiB of one device", _MIXED),
    *(Label(f"mig-<profile>.{name}", value, _MIXED) for name, value in _ATTRIBUTES),
)


def find(name: str) -> Label | None:
    """Return the entry that a label's name, without the prefix, belongs to."""
    for label in TABLE:
        if _pattern(label.name).fullmatch(name):
            return label
    return None


def _pattern(name: str) -> re.Pattern[str]:
    text = re.escape(name).replace("<model>", ".+")
    return re.compile(text.replace("<profile>", r"[0-9]+g\.[0-9]+gb[^/]*?"))


def page(head: list[str]) -> str:
    """Return the page of docs/reference; `head` is how every generated page begins."""
    lines = [
        *head,
        f"The process `gfd` writes them; each name begins with `{PREFIX}`.",
        "Names and values are those of NVIDIA's gpu-feature-discovery 0.20, but for this:",
        "",
        "- A value that is not the same for all cards of a node is left out, instead of being that "
        "of one of them; several models are told by `gpu.model.<model>`.",
        "- Memory that a card does not tell is left out.",
        "- A partition that is a part of a GPU instance (`1c.3g.40gb`) is counted by no label, for "
        "no resource offers it.",
        "- `gfd.timestamp` is when the other labels became so, not when the process began.",
        "- While the driver of cards that are there tells nothing of them, as when it is reloaded, "
        "or a card is still to be read for the first time, labels stay as they are; after five "
        "minutes (`hold-seconds`) they go.",
        "- When the process ends labels stay, in a file for five minutes, so that a restart takes "
        "none away.",
        "",
        "A change of driver, MIG or config changes the labels within two seconds.",
        "",
        "In DRA mode (label `gpu.deckhouse.io/active-mode=dra` of the Node) partitions come and go "
        "with the pods that claim them, so that they change no label.",
        "Labels are then those of whole cards, whatever the MIG strategy; the mode of cards that "
        "need a reset for it still counts, for it is an administrator's.",
        "While the mode changes, labels stay.",
        "",
        "Where a config shares only some of the cards, the labels tell of those.",
        "",
        "| label | value | there |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{each.name}` | {each.value} | {each.when or 'with a card that the driver serves'} |"
        for each in TABLE
    ]
    return "\n".join(lines) + "\n"
