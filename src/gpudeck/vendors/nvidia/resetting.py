# SPDX-License-Identifier: Apache-2.0
"""Resets cards, by the node's own nvidia-smi: NVML has no call for it.

Used by `driver` while no library process of ours lives, for a card is not reset while any
program has it open. So all are reset by one call: another nvidia-smi would be such a program.
It is given the node's own library, as `slicing` does it. It refuses all where one is in use
(driver 580), so nothing is asked before.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from gpudeck import errors, logs
from gpudeck.host import processes
from gpudeck.host import root as host
from gpudeck.vendors.nvidia import paths, users

log = logs.get(__name__)

_PROGRAM = "nvidia-smi"
_SECONDS = 40.0
_IN_USE = "being used"
"""In what nvidia-smi says of a card that is in use: 'is currently being used by …'."""


async def reset(root: host.Root, addresses: Sequence[str]) -> None:
    """`Vendor.reset`."""
    names = ", ".join(addresses)
    what = "the card" if len(addresses) == 1 else "the cards"
    library, program = paths.find_library(root), paths.find_program(root, _PROGRAM)
    if library is None or program is None:
        raise errors.UnsupportedError(
            f"{names}: {what} cannot be reset, the node has no {_PROGRAM}; reboot the node.",
            reason="ResetUnsupported",
        )
    words = [str(root.real(program)), "--gpu-reset", "-i", ",".join(addresses)]
    environment = {**os.environ, "LD_PRELOAD": str(root.real(library))}
    seconds = _SECONDS * len(addresses)  # One after the other, at the worst.
    log.info("Resetting cards", cards=names)
    try:
        done = await processes.run(words, deadline_seconds=seconds, environment=environment)
    except errors.UnavailableError as error:
        raise errors.UnavailableError(
            f"{names}: the reset of {what} did not end within {seconds:g} s; reboot the node.",
            reason="ResetHung",
        ) from error
    if done.status == 0:
        return
    said = " ".join((done.output + done.error_output).decode(errors="replace").split())
    if _IN_USE in said:
        pids = await asyncio.to_thread(users.of_cards, root, addresses)
        found = users.named(root, pids) or "it, monitoring and the persistence daemon included"
        raise errors.BusyError(
            f"{names}: {what} cannot be reset while a program has one open; end {found}, or "
            "reboot the node.",
            reason="CardInUse",
        )
    raise errors.UnavailableError(
        f"{names}: nvidia-smi does not reset {what} ({said or f'status {done.status}'}); "
        "reboot the node.",
        reason="ResetFailed",
    )
