# SPDX-License-Identifier: Apache-2.0
"""The console script: from here on Ctrl-C ends it at once, in silence, as a shell expects.

Imports next to nothing before that is so, for Python's own answer to Ctrl-C is a traceback, and
the imports of a command take most of its time; only the interpreter's own start, some 10 ms,
comes before. `cli.main` and commands that have something to put back call it.
"""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Run the command line."""
    end_at_once()
    from gpudeck.cli import main as commands  # noqa: PLC0415

    try:
        commands.main()
    finally:
        end_at_once()  # Of what Python does at its end nothing is to be told either.


def end_at_once() -> None:
    """Let Ctrl-C end the process wherever it is."""
    signal.signal(signal.SIGINT, _interrupted)


def put_back_first() -> None:
    """Let Ctrl-C raise KeyboardInterrupt, and cancel what runs in a loop, until the command ends.

    Nothing is done where Ctrl-C is not this module's, as in tests.
    """
    if signal.getsignal(signal.SIGINT) is _interrupted:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_by(number: signal.Signals) -> None:
    """End, never to return, as if the signal had not been caught: a shell's loop ends with that.

    The first process of a container outlives a signal that it leaves at its default.
    """
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def _interrupted(_: int, __: object) -> None:
    end_by(signal.SIGINT)
