# SPDX-License-Identifier: Apache-2.0
"""A connection to the kubelet for one question. Used by `podresources` and `deviceplugins`."""

from __future__ import annotations

from pathlib import Path

import grpc.aio

_OPTIONS = [
    # The kubelet's server refuses a socket's path as the name of a host.
    ("grpc.default_authority", "localhost"),
    # Channels of a process share connections otherwise, and one that has just failed keeps every
    # new channel from dialling for a second and more while anybody keeps its error (gRPC 1.80).
    ("grpc.use_local_subchannel_pool", 1),
]


def channel(socket: Path) -> grpc.aio.Channel:
    """A new channel that dials by itself, however the last one fared. Close it when done."""
    return grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)
