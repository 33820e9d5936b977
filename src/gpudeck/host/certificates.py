# SPDX-License-Identifier: Apache-2.0
"""A self-signed certificate for a TLS port of this process, made by a child that ends at once.

Called by `kube.serving` through the processes' main modules. Key and certificate stay in
memory; who scrapes the port is known by its token, and the port's owner by its address,
so nobody has to trust the certificate.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

from gpudeck import errors

DAYS = 30
"""Life of a certificate; it is replaced long before."""
_PROGRAM = "gpudeck.controller.selfsigned"
_SECONDS = 60.0


async def self_signed() -> bytes:
    """Return key and certificate as PEM, valid for `DAYS`. UnavailableError if they fail."""
    return await asyncio.to_thread(_made)


def _made() -> bytes:
    # Not by `host.processes`: uvloop forks, and gRPC's handlers of fork() speak up wherever
    # it has threads; subprocess (CPython 3.11) uses vfork(), which runs none.
    command = [sys.executable, "-m", _PROGRAM, socket.gethostname(), str(DAYS)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failed(str(error)) from error
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise _failed(lines[-1] if lines else f"it ended with status {done.returncode}")
    return done.stdout


def _failed(why: str) -> errors.UnavailableError:
    return errors.UnavailableError(
        f"a certificate for the metrics port cannot be made: {why}", reason="NoCertificate"
    )
