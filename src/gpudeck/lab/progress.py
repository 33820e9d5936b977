# SPDX-License-Identifier: Apache-2.0
"""What a long command is doing: `[n/m] what … elapsed`, for people.

On a terminal the running step is a line that counts its seconds; elsewhere one line is
printed as each step ends. It always writes to the error stream, so that the output of a
command stays what programs read. Used by everything in `lab` that takes time.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

_TICK_SECONDS = 0.2


class Progress:
    """Steps of a command; `total` is how many are expected, 0 when that is not known."""

    def __init__(self, total: int = 0, *, stream: TextIO | None = None) -> None:
        self._total = total
        self._stream = stream or sys.stderr
        self._done = 0
        self._began = time.monotonic()
        self._live = self._stream.isatty()
        self._lock = threading.Lock()
        self._detail = ""

    @property
    def elapsed(self) -> float:
        """Seconds since the first step could start."""
        return time.monotonic() - self._began

    def expect(self, more: int) -> None:
        """Say that `more` steps will come, on top of those expected so far."""
        self._total += more

    def note(self, text: str) -> None:
        """Print a line that is not a step."""
        with self._lock:
            self._clear()
            self._write(f"{text}\n")

    def detail(self, text: str) -> None:
        """Say where the running step is; off a terminal a new text is a line of its own."""
        if not self._live and text != self._detail:
            self.note(f"      {text}")
        self._detail = text

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Show `what` while the block runs, and how long it took."""
        self._done += 1
        number = f"[{self._done}/{max(self._total, self._done)}]"
        began = time.monotonic()
        over = threading.Event()
        self._detail = ""
        ticker = threading.Thread(
            target=self._tick, args=(f"{number} {what}", began, over), daemon=True
        )
        if self._live:
            ticker.start()
        outcome = "failed after"
        try:
            yield
            outcome = ""
        finally:
            over.set()
            if self._live:
                ticker.join()
            taken = " ".join(part for part in (outcome, duration(time.monotonic() - began)) if part)
            self.note(f"{number} {what:<44} {taken:>8}")

    def _tick(self, text: str, began: float, over: threading.Event) -> None:
        while not over.wait(_TICK_SECONDS):
            with self._lock:
                if over.is_set():
                    return
                passed = duration(time.monotonic() - began)
                line = f"{text} … {self._detail} {passed}" if self._detail else f"{text} … {passed}"
                self._clear()
                self._write(line[:118])

    def _clear(self) -> None:
        if self._live:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def duration(seconds: float) -> str:
    """Write a duration as people read it: 0.4 s, 12 s, 3 min 5 s."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"
