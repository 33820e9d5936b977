# SPDX-License-Identifier: Apache-2.0
"""Asks the host's init system for a reboot, as an administrator would: it ends services in order.

Called by whoever was allowed by the chart to reboot a node. The host's own `systemctl` is
run in the host's root, so that it finds the host's init system.
"""

from __future__ import annotations

from gpudeck import errors
from gpudeck.host import processes
from gpudeck.host.root import Root

_PROGRAMS = ("/usr/bin/systemctl", "/bin/systemctl")
_SECONDS = 60.0


async def reboot(root: Root) -> None:
    """Ask for it; the reboot itself comes later.

    Raises UnsupportedError where the host has no systemctl, UnavailableError where it refuses.
    """
    program = next((each for each in _PROGRAMS if root.exists(each)), None)
    if program is None:
        raise errors.UnsupportedError(
            f"the host has none of {', '.join(_PROGRAMS)}, so it cannot be told to reboot; "
            "reboot it by hand",
            reason="RebootUnsupported",
        )
    words = [program, "reboot"] if root.is_host else ["chroot", str(root.path), program, "reboot"]
    done = await processes.run(words, deadline_seconds=_SECONDS)
    if done.status != 0:
        said = " ".join(done.error_output.decode(errors="replace").split())
        raise errors.UnavailableError(
            f"{program} reboot: {said or f'status {done.status}'}", reason="RebootRefused"
        )
