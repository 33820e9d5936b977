# SPDX-License-Identifier: Apache-2.0
"""What the containers of a share by MPS are given, and whether its daemon is there.

Runs in the serving process; reads files, changes nothing. A container finds its daemon in
one folder, so all shares of a container are of one card. The amounts are told in the
container's environment: a program can give them up for itself, as the maker has it.
"""

from __future__ import annotations

import msgspec

from gpudeck.cdi import spec
from gpudeck.host import root as host
from gpudeck.vendors import contract
from gpudeck.vendors.nvidia.mps import places

_PIPE = "/tmp/nvidia-mps"
"""Where CUDA looks by itself, so a program that drops its environment finds the daemon too."""
_PIPE_OPTIONS = ("rw", "nosuid", "nodev", "noexec", "rbind", "rprivate")
_MEBIBYTE = 1 << 20
_LEAST_CORES = 1
"""What a claim has that names no cores: it takes its turn without a bound."""
_MESSAGE = "MPS keeps each process to the amount that leaves its environment as it is."


def pending(root: host.Root, use: contract.Use) -> str:
    """What is missing before a container can use the card, in one sentence; "" for nothing."""
    if use.admin_access:
        return ""
    state = places.Card(root, use.card.address).state()
    if not _is_mps(use.share):
        # Where nobody keeps daemons, what is told of one is of an earlier life.
        is_there = state is not None and places.is_served(root)
        return "The card's MPS daemon is still ending." if is_there else ""
    if not places.is_served(root):
        return (
            "No gpudeck mps-control runs on the node; see the DaemonSet nvidia-mps-control-daemon."
        )
    if state is None:
        return "The MPS daemon is not started yet."
    return "" if state.ready else state.message


def edits(root: host.Root, use: contract.Use, given: contract.UseEdits) -> contract.UseEdits:
    """The edits of a use, with the way to its daemon where it is a share by MPS."""
    share = use.share
    if share is None or not _is_mps(share) or use.admin_access:
        return given
    card = places.Card(root, use.card.address)
    mounts = (
        spec.Mount(host_path=root.on_node(card.pipe), container_path=_PIPE, options=_PIPE_OPTIONS),
        spec.Mount(
            host_path=root.on_node(card.shm), container_path="/dev/shm", options=_PIPE_OPTIONS
        ),
    )
    env = (f"CUDA_MPS_PIPE_DIRECTORY={_PIPE}", *_amounts(share))
    message = given.limits_memory_message
    if message and share.enforce_memory:
        message = f"{_MESSAGE} {message}"
    return msgspec.structs.replace(
        given,
        edits=msgspec.structs.replace(
            given.edits, env=(*given.edits.env, *env), mounts=(*given.edits.mounts, *mounts)
        ),
        limits_memory_message=message,
    )


def _is_mps(share: contract.Share | None) -> bool:
    return share is not None and share.strategy is contract.SharingStrategy.MPS


def _amounts(share: contract.Share) -> list[str]:
    found = []
    if share.memory_bytes is not None and share.enforce_memory:
        # The daemon serves one card, which is number 0 for its clients. Whole mebibytes.
        found.append(f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={share.memory_bytes // _MEBIBYTE}M")
    if share.cores is not None and share.cores > _LEAST_CORES:
        found.append(f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={share.cores}")
    return found
