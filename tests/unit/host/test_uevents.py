# SPDX-License-Identifier: Apache-2.0
"""Kernel events: parsing, filtering, and the look at the bus where there are none."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gpudeck.host import uevents
from gpudeck.host.root import Root

ADD = (
    b"add@/devices/pci0000:15/0000:1b:00.0\0ACTION=add\0"
    b"DEVPATH=/devices/pci0000:15/0000:1b:00.0\0SUBSYSTEM=pci\0SEQNUM=7\0"
)
MODULE = b"add@/module/nvidia\0ACTION=add\0DEVPATH=/module/nvidia\0SUBSYSTEM=module\0"
BLOCK = b"change@/devices/x\0ACTION=change\0DEVPATH=/devices/x\0SUBSYSTEM=block\0"


def test_a_kernel_message_is_parsed() -> None:
    assert uevents.parse(ADD) == uevents.Uevent("add", "/devices/pci0000:15/0000:1b:00.0", "pci")


@pytest.mark.parametrize("message", [b"", b"libudev\0\xfe\xed\xca\xfe", b"\0\0"])
def test_other_messages_are_passed_over(message: bytes) -> None:
    assert uevents.parse(message) is None


@contextlib.asynccontextmanager
async def running(
    start: Callable[[Callable[[], None]], asyncio.Task[None]],
) -> AsyncIterator[asyncio.Queue[None]]:
    calls: asyncio.Queue[None] = asyncio.Queue()
    task = start(lambda: calls.put_nowait(None))
    try:
        yield calls
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_messages_about_the_bus_are_told_and_others_are_not() -> None:
    ours, kernels = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    with ours, kernels:

        def start(changed: Callable[[], None]) -> asyncio.Task[None]:
            return asyncio.create_task(uevents.listen(ours, changed))

        async with running(start) as calls:
            kernels.send(BLOCK)
            kernels.send(ADD)
            await asyncio.wait_for(calls.get(), 5)
            assert calls.empty()


async def test_messages_about_modules_are_told_where_they_are_wanted() -> None:
    ours, kernels = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    with ours, kernels:

        def start(changed: Callable[[], None]) -> asyncio.Task[None]:
            return asyncio.create_task(uevents.listen(ours, changed, ("pci", "module")))

        async with running(start) as calls:
            kernels.send(BLOCK)
            kernels.send(MODULE)
            await asyncio.wait_for(calls.get(), 5)
            kernels.send(ADD)
            await asyncio.wait_for(calls.get(), 5)
            assert calls.empty()


async def test_a_plugged_card_and_a_changed_driver_are_told_without_kernel_events(
    tmp_path: Path,
) -> None:
    bus = tmp_path / "sys/bus/pci/devices"
    (bus / "0000:1b:00.0").mkdir(parents=True)
    root = Root(tmp_path, on_node="/mnt/host")

    def start(changed: Callable[[], None]) -> asyncio.Task[None]:
        watching = uevents.watch(root, changed, bound=lambda: ("0000:1b:00.0",), poll_seconds=0.001)
        return asyncio.create_task(watching)

    async with running(start) as calls:
        await asyncio.wait_for(calls.get(), 5)  # At the start, whatever there is.
        (bus / "0000:43:00.0").mkdir()
        await asyncio.wait_for(calls.get(), 5)
        (bus / "0000:1b:00.0/driver").symlink_to("../../drivers/vfio-pci")
        await asyncio.wait_for(calls.get(), 5)
        (bus / "0000:43:00.0").rmdir()
        await asyncio.wait_for(calls.get(), 5)


def test_the_kernels_socket_opens_without_privilege_or_is_refused_quietly() -> None:
    opened = uevents.open_socket()
    if opened is not None:
        assert opened.getsockname()[1] == 1
        opened.close()
