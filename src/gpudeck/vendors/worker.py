# SPDX-License-Identifier: Apache-2.0
"""What runs in a library process: calls come in by a socket, one at a time, answers go back.

The messages are msgpack on a SEQPACKET socket, so each arrives whole. A second thread
waits for the library's events and sends them as they come, and an empty message
every few seconds, by which the other side sees that the wait itself has not hung. The
name of the library function being entered stands in a piece of shared memory; it can
be read there when this process no longer answers. Ends when the socket does, and
with the process that started it even when that is killed: PR_SET_PDEATHSIG.

Imports here are paid for in memory a second time on every node, so there are few.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

import msgspec

from gpudeck import errors, logs
from gpudeck.vendors import contract, registry

PROGRESS_BYTES = 128
MESSAGE_BYTES = 1 << 17
"""The longest message; below the kernel's default limit for a socket buffer (208 KiB)."""
WAIT_SECONDS = 5.0
"""How long one wait for events lasts."""

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


class Order(contract.Value, frozen=True):
    """What the process is told when it is started."""

    connection: int
    """Descriptor of the socket for calls."""
    progress: int
    """Descriptor of the memory where it notes what it is doing."""
    parent: int
    vendor: str
    settings: contract.VendorSettings
    log_level: str


class Call(contract.Value, frozen=True):
    """`method` is open, read or act; `argument` the card's address."""

    id: int
    method: str
    argument: str = ""
    action: contract.Action | None = None


class Failure(contract.Value, frozen=True):
    """An error of the call; `kind` is the class in `gpudeck.errors`."""

    kind: str
    reason: str
    message: str


class Reply(contract.Value, frozen=True):
    """The answer to call `id`, or events (id 0)."""

    id: int = 0
    state: contract.DriverState | None = None
    reading: contract.CardReading | None = None
    partition: contract.Partition | None = None
    failure: Failure | None = None
    events: tuple[contract.CardEvent, ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Call).decode


def main() -> None:
    """Serve the process that is named in the order, which is this program's argument."""
    serve(msgspec.json.decode(sys.argv[1], type=Order))


def serve(order: Order) -> NoReturn:
    """Be the library process of an order, and end as it does."""
    try:
        _become("gpudeck-library", order.parent)
        logs.configure(order.log_level)
        connection = socket.socket(fileno=order.connection)
        progress = open_progress(order.progress)
        run(connection, registry.load(order.vendor).library(order.settings, progress))
    except BaseException:  # noqa: BLE001 - the other thread must not keep the process.
        report_and_exit(os.EX_SOFTWARE)
    os._exit(os.EX_OK)


def run(connection: socket.socket, library: contract.Library) -> None:
    """Serve calls until the other side closes the connection, be it with an answer unread."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        _serve(connection, library)


def _serve(connection: socket.socket, library: contract.Library) -> None:
    sending = threading.Lock()

    def send(reply: Reply) -> None:
        with sending:
            connection.send(_encode(reply))

    while message := connection.recv(MESSAGE_BYTES):
        call = _decode(message)
        reply = _answer(library, call)
        send(reply)
        if reply.state is not None and reply.state.ready:
            threading.Thread(target=_watch, args=(library, send), daemon=True).start()


def _answer(library: contract.Library, call: Call) -> Reply:
    try:
        if call.method == "open":
            return Reply(id=call.id, state=library.open())
        if call.action is not None:
            made = library.act(call.argument, call.action)
            return Reply(id=call.id, partition=made)
        return Reply(id=call.id, reading=library.read(call.argument))
    except errors.GpudeckError as error:
        kind = next(
            each.__name__ for each in type(error).__mro__ if each.__module__ == errors.__name__
        )
        failure = Failure(kind=kind, reason=error.reason, message=error.message)
        return Reply(id=call.id, failure=failure)


def _watch(library: contract.Library, send: Callable[[Reply], None]) -> None:
    try:
        while True:
            send(Reply(events=tuple(library.wait(WAIT_SECONDS))))
    except (BrokenPipeError, ConnectionResetError):
        return  # The other side has gone; the first thread ends the process.
    except BaseException:  # noqa: BLE001 - without a reader of errors, the end is the report.
        # Without this thread the process would look well and tell no event: end it loudly.
        report_and_exit(os.EX_SOFTWARE)


def open_progress(descriptor: int) -> contract.Progress:
    """Return the function that notes what the library is about to enter."""
    memory = mmap.mmap(descriptor, PROGRESS_BYTES)
    os.close(descriptor)

    def note(name: str) -> None:
        text = name.encode()[: PROGRESS_BYTES - 1]
        memory[: len(text) + 1] = text + b"\0"

    return note


def read_progress(memory: mmap.mmap) -> str:
    """Return what was noted last."""
    return memory[:].split(b"\0", 1)[0].decode("utf-8", "replace")


def _become(name: str, parent: int) -> None:
    """Take a name that `ps` shows, and die with the parent."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # It died before the line above.
        os._exit(os.EX_OK)


def report_and_exit(code: int) -> NoReturn:
    """End this process at once, with the traceback of the error being handled on stderr."""
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)
