# SPDX-License-Identifier: Apache-2.0
"""What a card offers to shares, and its time slice. Runs in the library process.

NVML has no call for the time slice: `nvidia-smi compute-policy` sets it, for the card and
all who share it, from Volta on. The node's own program is run with the library
that this process has loaded, as NVIDIA's DRA driver does it.
"""

from __future__ import annotations

import os
from typing import Any

from gpudeck import errors
from gpudeck.host import root as host
from gpudeck.vendors import contract
from gpudeck.vendors.nvidia import limits, paths
from gpudeck.vendors.nvidia.mps import joining
from gpudeck.vendors.nvidia.nvml import Nvml

_PROGRAM = "nvidia-smi"
_SECONDS = 7.0  # Below the deadline of `Library.act`.
_TIME_SLICES_SINCE = (7, 0)
_NUMBERS = {
    contract.TimeSlice.DEFAULT: 0,
    contract.TimeSlice.SHORT: 1,
    contract.TimeSlice.MEDIUM: 2,
    contract.TimeSlice.LONG: 3,
}


def support(
    nvml: Nvml, handle: Any, root: host.Root, capability: tuple[int, int] | None
) -> contract.ShareSupport:
    """What the card offers to shares. Raises QueryError for a card that fails."""
    why_not = limits.probe(nvml, handle, host.Root())
    return contract.ShareSupport(
        time_slicing=capability is not None and tuple(capability) >= _TIME_SLICES_SINCE,
        mps=joining.is_offered(nvml, handle, root, capability),
        memory_limits=not why_not,
        memory_limits_message=why_not,
    )


def set_time_slice(nvml: Nvml, root: host.Root, uuid: str, interval: contract.TimeSlice) -> None:
    """Set the time slice of the card.

    Raises UnsupportedError where the node has no nvidia-smi or the driver refuses, and
    UnavailableError where the program does not end.
    """
    # Loading asyncio costs each library process 3 MB, and few nodes ever set a time slice.
    import asyncio  # noqa: PLC0415 - as just said.

    from gpudeck.host import processes  # noqa: PLC0415 - it loads asyncio.

    library, program = paths.find_library(root), paths.find_program(root, _PROGRAM)
    if library is None or program is None:
        raise _unsupported(uuid, f"the node has no {_PROGRAM}")
    words = [
        str(root.real(program)),
        "compute-policy",
        "-i",
        uuid,
        f"--set-timeslice={_NUMBERS[interval]}",
    ]
    environment = {**os.environ, "LD_PRELOAD": str(root.real(library))}
    nvml.enter("nvidia-smi compute-policy")
    try:
        done = asyncio.run(processes.run(words, deadline_seconds=_SECONDS, environment=environment))
    except errors.UnavailableError as error:
        raise errors.UnavailableError(
            f"{uuid}: the time slice cannot be set, nvidia-smi did not end within {_SECONDS:g} s.",
            reason="TimeSliceHung",
        ) from error
    if done.status != 0:
        text = (done.output + done.error_output).decode(errors="replace").strip()
        raise _unsupported(uuid, text or f"nvidia-smi ended with {done.status}")


def _unsupported(uuid: str, why: str) -> errors.UnsupportedError:
    return errors.UnsupportedError(
        f"{uuid}: the time slice stays as it is: {why.rstrip('.')}.", reason="TimeSliceUnsupported"
    )
