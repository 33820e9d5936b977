# SPDX-License-Identifier: Apache-2.0
"""Shares come to a card and leave it, in the library process: compute mode and wishes.

With the first share the card is set to admit one process, which is the daemon's server
(EXCLUSIVE_PROCESS): whoever knows nothing of the daemon is kept off. With the last share the
card admits everybody again. The wish is written before the mode and taken back after it,
so a share that was given up half way is still known, and leaving again finishes it.
"""

from __future__ import annotations

from typing import Any

import pynvml

from gpudeck import errors
from gpudeck.host import root as host
from gpudeck.vendors import contract
from gpudeck.vendors.nvidia import paths
from gpudeck.vendors.nvidia.mps import places
from gpudeck.vendors.nvidia.nvml import Nvml

_SINCE = (7, 0)
"""Volta: from there on clients have address spaces and amounts of their own."""


def is_offered(
    nvml: Nvml, handle: Any, root: host.Root, capability: tuple[int, int] | None
) -> bool:
    """Whether the card can be shared by MPS now. Raises QueryError for a card that fails."""
    return (
        capability is not None
        and tuple(capability) >= _SINCE
        and places.is_served(root)
        and paths.find_program(root, places.PROGRAM) is not None
        and nvml.optional(pynvml.nvmlDeviceGetComputeMode, handle) is not None
    )


def join(nvml: Nvml, handle: Any, root: host.Root, card: contract.CardReading, share: str) -> None:
    """Let a share use the card's daemon; success when it does so already.

    Raises InvalidError for an id that is none, QueryError for a card that fails.
    """
    place = places.Card(root, card.address)
    is_new = place.add_share(share, card.uuid)
    try:
        _set_mode(nvml, handle, pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    except errors.GpudeckError:
        if is_new:
            place.remove_share(share)
        raise


def leave(nvml: Nvml, handle: Any, root: host.Root, address: str, share: str) -> None:
    """End the use of the daemon by a share, "" for all; success when it was ended already.

    Raises QueryError for a card that fails: the last share stays known then.
    """
    place = places.Card(root, address)
    known = place.shares()
    leaving = [each for each in known if share in ("", each)]
    if leaving and len(leaving) == len(known):
        _set_mode(nvml, handle, pynvml.NVML_COMPUTEMODE_DEFAULT)
    for each in leaving:
        place.remove_share(each)


def forget(root: host.Root, address: str, share: str) -> None:
    """Like `leave`, of a card that is lost: its mode went with it."""
    place = places.Card(root, address)
    for each in place.shares():
        if share in ("", each):
            place.remove_share(each)


def _set_mode(nvml: Nvml, handle: Any, mode: int) -> None:
    if nvml.call(pynvml.nvmlDeviceGetComputeMode, handle) != mode:
        nvml.call(pynvml.nvmlDeviceSetComputeMode, handle, mode)
