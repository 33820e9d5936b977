# SPDX-License-Identifier: Apache-2.0
"""Resets a card, by the node's own nvidia-smi: NVML has no call for it.

Used by `driver` while no library process of ours lives, for a card is not reset while any
program has it open. The program is given the node's own library, as `slicing` does it. It
refuses a card in use itself (driver 580), so nothing is asked before.
"""

from __future__ import annotations

import os

from gpudeck import errors, logs
from gpudeck.host import processes
from gpudeck.host import root as host
from gpudeck.vendors.nvidia import paths

log = logs.get(__name__)

_PROGRAM = "nvidia-smi"
_SECONDS = 40.0
_IN_USE = "being used"
"""In what nvidia-smi says of a card that is in use: 'is currently being used by …'."""


async def reset(root: host.Root, address: str) -> None:
    """`Vendor.reset`."""
    library, program = paths.find_library(root), paths.find_program(root, _PROGRAM)
    if library is None or program is None:
        raise errors.UnsupportedError(
            f"{address}: the card cannot be reset, the node has no {_PROGRAM}; reboot the node.",
            reason="ResetUnsupported",
        )
    words = [str(root.real(program)), "--gpu-reset", "-i", address]
    environment = {**os.environ, "LD_PRELOAD": str(root.real(library))}
    log.info("Resetting card", card=address)
    try:
        done = await processes.run(words, deadline_seconds=_SECONDS, environment=environment)
    except errors.UnavailableError as error:
        raise errors.UnavailableError(
            f"{address}: the reset of the card did not end within {_SECONDS:g} s; reboot the node.",
            reason="ResetHung",
        ) from error
    if done.status == 0:
        return
    said = " ".join((done.output + done.error_output).decode(errors="replace").split())
    if _IN_USE in said:
        raise errors.BusyError(
            f"{address}: the card cannot be reset while a program has it open; end it, monitoring "
            "programs and the persistence daemon included, or reboot the node.",
            reason="CardInUse",
        )
    raise errors.UnavailableError(
        f"{address}: nvidia-smi does not reset the card ({said or f'status {done.status}'}); "
        "reboot the node.",
        reason="ResetFailed",
    )
