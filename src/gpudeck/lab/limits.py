# SPDX-License-Identifier: Apache-2.0
"""Limits of the machine that a lab of several nodes outgrows, raised once and told.

Each node's kubelet and container runtime watch files, and the kernel counts watchers
per user, which all nodes of all labs share. With 128, the default of many systems, the
third lab's kubelets end with `inotify_init: too many open files`. A raised limit costs
nothing by itself and stays until the machine restarts: another lab may need it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH = 2048


def raise_inotify(report: Callable[[str], None], *, limit: Path = INOTIFY) -> None:
    """Raise the number of file watchers a user may have, if it is too low for several labs."""
    try:
        now = int(limit.read_text())
        if now >= ENOUGH:
            return
        limit.write_text(str(ENOUGH))
    except OSError as error:
        report(f"{limit} cannot be raised to {ENOUGH} ({error.strerror}): kubelets may fail")
        return
    report(f"raised fs.inotify.max_user_instances from {now} to {ENOUGH} until the next boot")
