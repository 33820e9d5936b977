# SPDX-License-Identifier: Apache-2.0
"""How a library process ends when whoever started it does."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import msgspec
from tests.contract.vendors import benches

from gpudeck.vendors import registry, worker


def test_who_leaves_answers_unread_ends_it_as_who_does_not(tmp_path: Path) -> None:
    bench = benches.SimulatedBench(tmp_path)
    library = registry.load(bench.vendor).library(bench.settings, lambda _: None)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ended: list[BaseException | None] = []

    def serve() -> None:
        try:
            worker.run(theirs, library)
        except BaseException as error:  # noqa: BLE001 - the test tells it.
            ended.append(error)
        else:
            ended.append(None)

    thread = threading.Thread(target=serve)
    thread.start()
    for number in (1, 2):
        ours.send(msgspec.msgpack.encode(worker.Call(id=number, method="read", argument="x")))
    ours.recv(worker.MESSAGE_BYTES, socket.MSG_PEEK)  # It has answered.
    ours.close()
    thread.join(10)
    theirs.close()
    assert ended == [None]
