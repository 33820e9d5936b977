# SPDX-License-Identifier: Apache-2.0
"""Tell when PCI devices come, go, or change their driver, and when modules are loaded.

The kernel's own messages (NETLINK_KOBJECT_UEVENT, group 1) say so at once and cost
nothing in between; the kernel sends those of untagged devices to every network
namespace of the first user namespace, so a pod without host network and without
privilege receives them. They speak of the real bus: for a host root that is not the
machine's own, or where the socket is refused, the bus folder is looked at each second.
A message is only a reason to look: what has changed is found out by a scan.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Collection, Iterable

import msgspec

from gpudeck import errors, logs
from gpudeck.host import pci
from gpudeck.host.root import Root

_NETLINK_KOBJECT_UEVENT = 15  # include/uapi/linux/netlink.h; Python 3.11 has no name for it.
_KERNEL_GROUP = 1  # Group 2 is udev's, which needs libudev's framing.
_BUFFER_BYTES = 1 << 20  # Room for the burst of a whole bus that is scanned again.
_MESSAGE_BYTES = 8192  # UEVENT_BUFFER_SIZE is 2048 (include/linux/kobject.h).

log = logs.get(__name__)


class Uevent(msgspec.Struct, frozen=True, gc=False):
    """One message of the kernel."""

    action: str
    """add, remove, change, bind, unbind, …"""
    device_path: str
    """Below /sys, e.g. `/devices/pci0000:15/0000:15:01.0/0000:1b:00.0`."""
    subsystem: str


def parse(message: bytes) -> Uevent | None:
    """Parse `action@path NUL KEY=value NUL …`; None if it is not of that form."""
    head, *pairs = message.split(b"\0")
    if b"@" not in head:
        return None
    values = dict(pair.partition(b"=")[::2] for pair in pairs if b"=" in pair)
    return Uevent(
        action=values.get(b"ACTION", b"").decode("ascii", "replace"),
        device_path=values.get(b"DEVPATH", b"").decode("utf-8", "replace"),
        subsystem=values.get(b"SUBSYSTEM", b"").decode("ascii", "replace"),
    )


def open_socket() -> socket.socket | None:
    """A socket that receives the kernel's messages; None where that is not permitted."""
    try:
        opened = socket.socket(
            socket.AF_NETLINK,
            socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
            _NETLINK_KOBJECT_UEVENT,
        )
    except OSError as error:
        log.info("Kernel events are not available", error=error)
        return None
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        opened.bind((0, _KERNEL_GROUP))
    except OSError as error:
        opened.close()
        log.info("Kernel events are not available", error=error)
        return None
    return opened


async def watch(
    root: Root,
    changed: Callable[[], None],
    *,
    bound: Callable[[], Iterable[str]] = tuple,
    poll_seconds: float = 1.0,
    modules: bool = False,
) -> None:
    """Call `changed` on the loop after each change of the PCI bus, until cancelled.

    With `modules`, also when the kernel says that it loads or unloads a module. Also once at the
    start: what happened before is unknown. Several changes at once may give one call or several.
    Where there are no messages, `bound` names the addresses whose driver is looked at besides
    the list of devices.
    """
    opened = open_socket() if root.on_node("/sys") == "/sys" else None
    if opened is None:
        await _poll(root, changed, bound, poll_seconds)
        return
    with opened:
        changed()
        await listen(opened, changed, ("pci", "module") if modules else ("pci",))


async def listen(
    opened: socket.socket, changed: Callable[[], None], subsystems: Collection[str] = ("pci",)
) -> None:
    """Call `changed` for each message about these on `opened`, until cancelled."""
    loop = asyncio.get_running_loop()
    loop.add_reader(opened.fileno(), _drain, opened, changed, subsystems)
    try:
        await asyncio.Event().wait()
    finally:
        loop.remove_reader(opened.fileno())


def _drain(opened: socket.socket, changed: Callable[[], None], subsystems: Collection[str]) -> None:
    """Read all messages that wait; one call of `changed` covers them."""
    relevant = False
    while True:
        try:
            message, sender = opened.recvfrom(_MESSAGE_BYTES)
        except BlockingIOError:
            break
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            relevant = True  # Messages were lost: the bus may have changed.
            continue
        event = parse(message) if _is_from_kernel(sender) else None
        relevant = relevant or (event is not None and event.subsystem in subsystems)
    if relevant:
        changed()


def _is_from_kernel(sender: object) -> bool:
    # Any process may send to the group; the kernel's address has port id 0.
    return not isinstance(sender, tuple) or sender[0] == 0


async def _poll(
    root: Root, changed: Callable[[], None], bound: Callable[[], Iterable[str]], seconds: float
) -> None:
    followed = tuple(bound())
    before = look(root, followed)
    changed()
    while True:
        await asyncio.sleep(seconds)
        now = look(root, followed)
        if now != before:
            changed()
        addresses = tuple(bound())
        # A card that is followed from now on is no change by itself.
        before = now if addresses == followed else look(root, addresses)
        followed = addresses


def look(root: Root, bound: Iterable[str]) -> tuple[tuple[str, ...], tuple[str | None, ...]]:
    """What is on the bus, and the driver of each address of `bound`, as cheaply as can be."""
    root = root.look()
    try:
        names = tuple(root.list(pci.DEVICES))
    except errors.GpudeckError:
        names = ()
    return names, tuple(_driver(root, address) for address in bound)


def _driver(root: Root, address: str) -> str | None:
    try:
        return root.link(f"{pci.DEVICES}/{address}/driver")
    except errors.GpudeckError:
        return None
