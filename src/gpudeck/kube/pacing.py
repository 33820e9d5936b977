# SPDX-License-Identifier: Apache-2.0
"""How long to wait before the next attempt: exponential, with jitter, with a ceiling.

Pure. Used by caches, queues, the elector and the recorder. The jitter keeps the
node processes of a big cluster from coming back in step after an outage.
"""

from __future__ import annotations

import random

from gpudeck import errors


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
        return jittered(self._step())

    def after(self, error: Exception) -> float:
        """Like `next`, but never sooner than the peer asked for (Retry-After)."""
        seconds = self.next()
        asked = error.after_seconds if isinstance(error, errors.RetryableError) else None
        return seconds if asked is None else max(seconds, asked)

    def _step(self) -> float:
        # 2**30 is far beyond any limit; without the cut an outage of days would overflow a float.
        step = min(self.first_seconds * 2.0 ** min(self.failures, 30), self.limit_seconds)
        self.failures += 1
        return step


def jittered(seconds: float) -> float:
    """Return between half and all of `seconds`."""
    return seconds * random.uniform(0.5, 1.0)
