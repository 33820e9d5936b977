# SPDX-License-Identifier: Apache-2.0
"""Asks the host's init system for things, as an administrator would: units, and a reboot.

Called by whoever was allowed by the chart to do so. The host's own `systemctl` is run in the
host's root, so that it finds the host's init system; it refuses where this process does not
see that one's process id, so a container needs the host's PIDs. Names of units are those of
the host; nothing is enabled, disabled or changed in its files.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpudeck import errors
from gpudeck.host import processes
from gpudeck.host.root import Root

_PROGRAMS = ("/usr/bin/systemctl", "/bin/systemctl")
_BOOTED = "/run/systemd/system"
"""There while systemd is the init system, and only then (sd_booted(3))."""
_ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C",
    # In a root that it does not take for the init system's own, systemctl ignores what it is told
    # and succeeds. The host's root has another mount here than there (systemd 257 compares them).
    "SYSTEMD_IGNORE_CHROOT": "1",
    "SYSTEMD_IN_CHROOT": "0",
}
_ASK_SECONDS = 30.0
_SECONDS = 60.0
_UNIT_SECONDS = 120.0
"""Longer than a unit may take by default (90 s, systemd-system.conf(5))."""
_RUNNING = frozenset({"active", "activating", "reloading", "refreshing"})


async def reboot(root: Root) -> None:
    """Ask for it; the reboot itself comes later.

    Raises UnsupportedError where the host has no systemctl, UnavailableError where it refuses.
    """
    if _program(root) is None:
        raise errors.UnsupportedError(
            f"the host has none of {', '.join(_PROGRAMS)}, so it cannot be told to reboot; "
            "reboot it by hand",
            reason="RebootUnsupported",
        )
    await _told(root, ["reboot"], deadline_seconds=_SECONDS, reason="RebootRefused")


async def running(root: Root, units: Sequence[str]) -> tuple[str, ...]:
    """Those of the units that run or begin to; none where the host has no systemd.

    Raises UnavailableError where it does not answer.
    """
    if not units or _program(root) is None or not root.is_directory(_BOOTED):
        return ()
    done = await _run(root, ["is-active", *units], _ASK_SECONDS)
    states = done.output.decode(errors="replace").split()
    if len(states) != len(units):  # The status only says whether any of them runs.
        raise _refusal("is-active", done, reason="UnitsUnknown")
    return tuple(unit for unit, state in zip(units, states, strict=True) if state in _RUNNING)


async def stop(root: Root, units: Sequence[str]) -> None:
    """Stop units, and wait until they have ended. Raises UnavailableError that says which not."""
    await _told(root, ["stop", *units], deadline_seconds=_UNIT_SECONDS, reason="UnitNotStopped")


async def start(root: Root, units: Sequence[str]) -> None:
    """Start units, and wait until they run. Raises UnavailableError that says which do not."""
    await _told(root, ["start", *units], deadline_seconds=_UNIT_SECONDS, reason="UnitNotStarted")


async def _told(root: Root, words: list[str], *, deadline_seconds: float, reason: str) -> None:
    done = await _run(root, words, deadline_seconds)
    if done.status != 0:
        raise _refusal(" ".join(words), done, reason=reason)


def _refusal(what: str, done: processes.Finished, *, reason: str) -> errors.UnavailableError:
    said = " ".join(done.error_output.decode(errors="replace").split())
    return errors.UnavailableError(
        f"the host's systemctl {what}: {said or f'status {done.status}'}", reason=reason
    )


async def _run(root: Root, words: list[str], deadline_seconds: float) -> processes.Finished:
    program = _program(root)
    if program is None:
        raise errors.UnavailableError(
            f"the host has none of {', '.join(_PROGRAMS)}", reason="NoInitSystem"
        )
    command = [program, *words]
    if not root.is_host:
        command = ["chroot", str(root.path), *command]
    return await processes.run(command, deadline_seconds=deadline_seconds, environment=_ENVIRONMENT)


def _program(root: Root) -> str | None:
    return next((each for each in _PROGRAMS if root.exists(each)), None)
