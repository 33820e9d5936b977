# SPDX-License-Identifier: Apache-2.0
"""What a container needs of a card that it shares: the card, and a limit of its memory.

The limit is set when the container is created, by a hook of ours (native/hook): the one of
NVIDIA's toolkit (1.20) has one amount for all cards of a container, and fails the
container where a limit cannot be kept. Ours says why and lets it start. Called by `driver`.
"""

from __future__ import annotations

from pathlib import PurePosixPath

import msgspec

from gpudeck import errors
from gpudeck.cdi import spec
from gpudeck.host import programs
from gpudeck.host import root as host
from gpudeck.vendors import contract
from gpudeck.vendors.nvidia import paths

PROGRAM = PurePosixPath("/usr/bin/gpudeck-memory-limits")
"""In the image. `cdi.hooks` copies it to the node, beside NVIDIA's program."""
KEPT = "The containers of a pod have the amount together, and each pod of the claim has it."
_STAGE = "createRuntime"
"""The first process is in its cgroup then, and hooks still see the node (OCI runtime 1.2)."""


def edits(
    root: host.Root, use: contract.Use, of_card: spec.ContainerEdits, *, hook_path: str
) -> contract.UseEdits:
    """Edits of a share: those of the card, and the hook that limits memory where it can be.

    A share that is not limited has the hook too where the card keeps limits: without it, what
    the share takes would count in the amounts of the pod's other shares of the card.
    """
    share = use.share
    if share is None or use.admin_access:
        return contract.UseEdits(edits=of_card)
    limited = share.enforce_memory and share.memory_bytes is not None
    support = use.card.share_support
    hook = _hook(root, hook_path, use.card.uuid, share) if support.memory_limits else None
    if share.memory_bytes is None:
        message = ""
    elif not share.enforce_memory:
        message = "The claim wants its amount reported only."
    elif not support.memory_limits:
        message = support.memory_limits_message
    else:
        message = KEPT if hook else f"The image has no {PROGRAM}, so no limit is set."
    if hook is None:
        return contract.UseEdits(edits=of_card, limits_memory_message=message)
    return contract.UseEdits(
        edits=msgspec.structs.replace(of_card, hooks=(*of_card.hooks, hook)),
        limits_memory=limited,
        limits_memory_message=message,
    )


def _hook(root: host.Root, hook_path: str, uuid: str, share: contract.Share) -> spec.Hook | None:
    """The hook that adds the share to the limits of the container and its pod.

    None where the image lacks the program or nothing was installed on the node.
    """
    library = paths.find_library(root)
    if not hook_path or library is None:
        return None
    try:
        content = host.Root().read_bytes(str(PROGRAM))
    except errors.NotFoundError:
        return None
    installed = programs.installed_name(PROGRAM.name, content)
    amount = share.memory_bytes if share.enforce_memory else None
    return spec.Hook(
        hook_name=_STAGE,
        path=str(PurePosixPath(hook_path).with_name(installed)),
        args=(
            PROGRAM.name,
            "--library",
            root.on_node(root.resolve(library)),
            "--limit",
            f"{uuid}/{share.share_id}={'unlimited' if amount is None else amount}",
        ),
    )
