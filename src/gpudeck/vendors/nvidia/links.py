# SPDX-License-Identifier: Apache-2.0
"""Which NVLinks of a card are up, and where they lead, as NVML tells it; changes nothing.

Runs in the library process, for `inventory`, once for a card in the life of a process:
some 36 queries. A card without NVLink answers the first as not supported.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pynvml

from gpudeck.devices.identities import PciAddress
from gpudeck.vendors import contract
from gpudeck.vendors.nvidia.nvml import Nvml

Handle = Any
"""nvmlDevice_t, an opaque pointer."""


def read(nvml: Nvml, handle: Handle) -> tuple[contract.Link, ...]:
    """The links of a card by their peer: a card's address, or empty for a switch."""
    counts: Counter[str] = Counter()
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        peer = _peer(nvml, handle, link)
        if peer is not None:
            counts[peer] += 1
    return tuple(contract.Link(peer=peer, count=counts[peer]) for peer in sorted(counts))


def _peer(nvml: Nvml, handle: Handle, link: int) -> str | None:
    """None for a link that is down or that the card has not."""
    state = nvml.optional(pynvml.nvmlDeviceGetNvLinkState, handle, link)
    if state != pynvml.NVML_FEATURE_ENABLED:
        return None
    kind = nvml.optional(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
    if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
        return ""
    found = nvml.optional(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
    if found is None:
        return None
    return str(PciAddress(found.domain, found.bus, found.device, 0))
