# SPDX-License-Identifier: Apache-2.0
"""Where distributions put the driver's libraries, in the order they are looked for."""

from __future__ import annotations

LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib",
)
