# SPDX-License-Identifier: Apache-2.0
"""Ports of servers that tests start by number."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket

_PORTS = range(20_000, 32_000)
"""Below those that the kernel gives to connections (from 32768), of which one may be taken
between the asking and the server's start."""
_next = itertools.cycle(random.sample(_PORTS, len(_PORTS)))


def free() -> int:
    """A port of loopback that nobody listens on, another at each call."""
    while True:
        port = next(_next)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
