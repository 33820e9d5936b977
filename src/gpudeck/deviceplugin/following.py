# SPDX-License-Identifier: Apache-2.0
"""What to do next so that the kubelet knows a plugin: serve, register, or nothing.

Pure. A kubelet that starts removes every socket of the folder and then makes its own
(1.34 to 1.37), so the plugin's own socket is looked at as well as the kubelet's
(case-09). A kubelet is told from another by the identity of its socket file: a late
notice of a socket that we are registered with is no reason to do anything. A stream
that ended and does not come back is one: the kubelet has dropped us.
"""

from __future__ import annotations

import enum

from gpudeck.pluginconfig import model

STREAM_SECONDS = 2.0
"""How long the kubelet may take to follow us before we register again."""
LONGEST_SECONDS = 30.0
LOOK_SECONDS = 0.2
"""How often sockets are looked at while a kubelet is awaited."""
SETTLED_SECONDS = 1.0
"""The same while it follows: its end ends its stream, which is told at once."""


class Step(enum.StrEnum):
    NOTHING = "nothing"
    SERVE = "serve"
    REGISTER = "register"


class Situation(model.Value, frozen=True):
    """A plugin as it stands. Times are of one steady clock."""

    now: float
    serves: bool
    """Its own socket is there, and is the one that we made."""
    kubelet: tuple[int, int] | None
    """Identity of the kubelet's socket; None: there is none."""
    registered: tuple[int, int] | None
    """That of the kubelet that has accepted us."""
    followed: bool
    """A kubelet reads our list."""
    since: float
    """When that, or being registered, began to be as it is."""
    failures: int = 0
    """Registrations that came to nothing, in a row, with this kubelet."""
    tried: float = 0.0


def step(situation: Situation) -> Step:
    """The next step; asked again and again."""
    if not situation.serves:
        return Step.SERVE
    if situation.kubelet is None:
        return Step.NOTHING
    pause = min(0.25 * 2**situation.failures, LONGEST_SECONDS) if situation.failures else 0.0
    if situation.now - situation.tried < pause:
        return Step.NOTHING
    if situation.registered != situation.kubelet:
        return Step.REGISTER
    if not situation.followed and situation.now - situation.since >= STREAM_SECONDS:
        return Step.REGISTER
    return Step.NOTHING


def is_settled(situation: Situation) -> bool:
    """Nothing is awaited: the kubelet that accepted us is there and follows."""
    known = situation.kubelet is not None and situation.registered == situation.kubelet
    return situation.serves and known and situation.followed
