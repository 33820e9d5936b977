# SPDX-License-Identifier: Apache-2.0
"""How long to wait before the next attempt: exponential, with jitter, with a ceiling.

Pure. Used by caches, queues, the elector and the recorder. The jitter keeps the
node processes of a big cluster from coming back in step after an outage.
"""

from __future__ import annotations

import random

from gpudeck import errors

UNREACHABLE = "Unreachable"
"""The reason of an error of a peer to which no connection could be made."""
UNREACHABLE_SECONDS = 5.0
"""Such a peer is tried at least this often: that costs it nothing, and when it is back
its news are wanted soon. Its own refusals (429, 5xx) count up to the whole limit."""


class Backoff:
    """Waiting times of one thing that keeps failing; `reset` when it works again."""

    def __init__(self, first_seconds: float = 0.2, limit_seconds: float = 30.0) -> None:
        self.first_seconds = first_seconds
        self.limit_seconds = limit_seconds
        self.failures = 0

    def reset(self) -> None:
        """Forget the failures."""
        self.failures = 0

    def next(self) -> float:
        """Count a failure and return the seconds to wait: between half and all of the step."""
        return jittered(self._step_to(self.limit_seconds))

    def after(self, error: Exception) -> float:
        """Like `next`, but never sooner than the peer asked for (Retry-After).

        While the peer is unreachable, never later than after UNREACHABLE_SECONDS.
        """
        if isinstance(error, errors.GpudeckError) and error.reason == UNREACHABLE:
            return jittered(self._step_to(min(self.limit_seconds, UNREACHABLE_SECONDS)))
        seconds = self.next()
        asked = error.after_seconds if isinstance(error, errors.RetryableError) else None
        return seconds if asked is None else max(seconds, asked)

    def _step_to(self, limit: float) -> float:
        # 2**30 is far beyond any limit; without the cut an outage of days would overflow a float.
        step = self.first_seconds * 2.0 ** min(self.failures, 30)
        if step < limit:
            # Beyond it nothing is counted: what fails otherwise after an outage, as a server
            # does that is still starting, must not wait as if it had failed so all the time.
            self.failures += 1
        return min(step, limit)


def jittered(seconds: float) -> float:
    """Return between half and all of `seconds`."""
    return seconds * random.uniform(0.5, 1.0)
