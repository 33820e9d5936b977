# SPDX-License-Identifier: Apache-2.0
"""Where distributions put the driver's libraries and programs, in the order they are looked for."""

from __future__ import annotations

from gpudeck.host import root as host

LIBRARY = "libnvidia-ml.so.1"

LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib",
)
PROGRAM_FOLDERS = ("/usr/bin", "/usr/sbin", "/opt/bin")


def find_library(root: host.Root) -> str | None:
    """Where the node has NVML, as a path of the node."""
    return _find(root, LIBRARY_FOLDERS, LIBRARY)


def find_program(root: host.Root, name: str) -> str | None:
    """Where the node has a program of the driver, as a path of the node."""
    return _find(root, PROGRAM_FOLDERS, name)


def _find(root: host.Root, folders: tuple[str, ...], name: str) -> str | None:
    for folder in folders:
        path = f"{folder}/{name}"
        if root.exists(path):
            return path
    return None
