# SPDX-License-Identifier: Apache-2.0
"""One gRPC server a resource, kept known to the kubelet.

`Plugins` is told each new `standing`; it begins to serve resources that are new, and
goes on to serve those that are no longer offered, with an empty list, so that the
Node shows 0 of them at once. It looks at the folder of sockets some times a second:
a few system calls, which see what a watch of the folder may lose.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from gpudeck import errors, logs, sockets
from gpudeck.deviceplugin import following, metrics, standing
from gpudeck.host import root
from gpudeck.kubelet import deviceplugins, services
from gpudeck.kubelet.wire import deviceplugin_pb2 as pb
from gpudeck.pluginconfig import model

log = logs.get(__name__)

GRACE_SECONDS = 2.0
RETRY_SECONDS = 2.0
HELD_SECONDS = 10.0
"""For so long what was handed out counts as held: the kubelet tells of it a little later."""


class Served:
    """One resource: its list, its server, and whether the kubelet follows it."""

    def __init__(
        self,
        name: str,
        folder: Path,
        current: Callable[[], standing.Standing],
        *,
        allocated: Callable[[], None],
        left: Callable[[], None],
    ) -> None:
        """`left` is called when a kubelet has ceased to follow."""
        self.name = name
        self._allocated = allocated
        self._left = left
        self.path = folder / socket_name(name)
        self._folder = folder
        self._current = current
        self._changed = asyncio.Event()
        self._repeats = 0
        self._stack = contextlib.AsyncExitStack()
        self._identity: tuple[int, int] | None = None
        self._registered: tuple[int, int] | None = None
        self._streams = 0
        self._since = self._tried = 0.0
        self._failures = 0
        self._failed_with: tuple[int, int] | None = None
        self._closing = False
        self._not_before = 0.0
        self.failure = ""
        """Why there is no socket."""
        self.failing_since = 0.0
        self.handed_out: dict[str, float] = {}
        """When each device was last allocated."""

    def changed(self) -> None:
        """Let every stream send the list anew."""
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def is_followed(self) -> bool:
        """Whether a kubelet reads the list."""
        return self._streams > 0

    def repeat(self) -> None:
        """Let every stream send the list again, also if it is as before."""
        self._repeats += 1
        self.changed()

    async def watch(self) -> AsyncGenerator[pb.ListAndWatchResponse, None]:
        """`deviceplugins.Plugin.watch`."""
        self._streams += 1
        sent: tuple[int, list[pb.Device]] | None = None
        try:
            while not self._closing:
                changed = self._changed
                listed = standing.devices(self._current(), self.name)
                if (self._repeats, listed) != sent:
                    sent = self._repeats, listed
                    metrics.listed(self.name, listed)
                    yield pb.ListAndWatchResponse(devices=listed)
                    continue  # It may have changed while it was sent.
                await changed.wait()
        finally:
            self._streams -= 1
            self._since = time.monotonic()
            self._left()

    def allocate(self, request: pb.AllocateRequest) -> pb.AllocateResponse:
        """`deviceplugins.Plugin.allocate`."""
        with metrics.call_seconds.labels("allocate").time():
            answers = []
            for each in request.container_requests:
                answers.append(standing.allocate(self._current(), self.name, each.devices_ids))
                self.handed_out.update(dict.fromkeys(each.devices_ids, time.monotonic()))
            self._allocated()
            return pb.AllocateResponse(container_responses=answers)

    def prefer(self, request: pb.PreferredAllocationRequest) -> pb.PreferredAllocationResponse:
        """`deviceplugins.Plugin.prefer`."""
        with metrics.call_seconds.labels("prefer").time():
            chosen = [
                standing.prefer(self._current(), self.name, each)
                for each in request.container_requests
            ]
            return pb.PreferredAllocationResponse(
                container_responses=[
                    pb.ContainerPreferredAllocationResponse(deviceIDs=each) for each in chosen
                ]
            )

    def recent(self) -> frozenset[str]:
        """Devices that were handed out so lately that the kubelet may not tell of them yet."""
        limit = time.monotonic() - HELD_SECONDS
        self.handed_out = {each: at for each, at in self.handed_out.items() if at > limit}
        return frozenset(self.handed_out)

    async def look(self, kubelet: tuple[int, int] | None) -> bool:
        """Do the next step, if there is one; False while a kubelet is awaited."""
        if self._failures and kubelet != self._failed_with:
            self._failures = 0  # Another kubelet: it need not wait for what the last one did.
        situation = following.Situation(
            now=time.monotonic(),
            serves=self._identity is not None and identity(self.path) == self._identity,
            kubelet=kubelet,
            registered=self._registered,
            followed=self.is_followed,
            since=self._since,
            failures=self._failures,
            tried=self._tried,
        )
        match following.step(situation):
            case following.Step.SERVE:
                if await self._serve():
                    await self._register(kubelet)
            case following.Step.REGISTER:
                await self._register(kubelet)
            case following.Step.NOTHING:
                return following.is_settled(situation)
        return False

    async def _serve(self) -> bool:
        """Make the socket (anew). The old server is ended first: gRPC removes its path then."""
        if time.monotonic() < self._not_before:
            return False
        self._registered = None
        fill = services.filled(deviceplugins.handler(self))
        try:
            await self._end()
            await self._stack.enter_async_context(
                sockets.served(self.path, fill, grace_seconds=GRACE_SECONDS)
            )
        except errors.GpudeckError as error:
            # Without a kubelet there may be no folder yet.
            self._not_before = time.monotonic() + RETRY_SECONDS
            self.failing_since = self.failing_since if self.failure else time.monotonic()
            self.failure = error.message
            log.warning("No socket for a resource", resource=self.name, error=error)
            return False
        self._identity = identity(self.path)
        self.failure = ""
        return True

    async def _register(self, kubelet: tuple[int, int] | None) -> None:
        if kubelet is None:
            return
        self._tried = time.monotonic()
        try:
            await deviceplugins.register(self._folder, endpoint=self.path.name, resource=self.name)
        except errors.GpudeckError as error:
            self._failures += 1
            self._failed_with = kubelet
            level = log.info if isinstance(error, errors.RetryableError) else log.warning
            level("Not registered with the kubelet", resource=self.name, error=error)
            return
        again = self._registered == kubelet
        # Followed by nobody in time, an accepted registration is worth no more than a failed one.
        self._failures = self._failures + 1 if again else 0
        self._failed_with = kubelet
        self._registered = kubelet
        self._since = time.monotonic()
        metrics.registrations.labels(self.name).inc()
        log.info("Registered with the kubelet", resource=self.name, socket=self.path)

    async def _end(self) -> None:
        self._closing = True
        self.changed()
        try:
            await self._stack.aclose()
        finally:
            self._identity = None
            self._closing = False

    async def close(self) -> None:
        """End the server; its socket goes."""
        await self._end()


class Plugins:
    """All resources of the node."""

    def __init__(self, folder: Path, allocated: Callable[[], None] = lambda: None) -> None:
        """`allocated` is called whenever devices are handed out."""
        self._folder = folder
        self._allocated = allocated
        self.standing = standing.Standing()
        self.served: dict[str, Served] = {}
        self._wake = asyncio.Event()

    def show(self, new: standing.Standing) -> None:
        """Let the resources say what `new` says."""
        if new == self.standing:
            return  # To make thousands of devices for the kubelet takes longer than to compare.
        self.standing = new
        for resource in new.offer.resources:
            if resource.name not in self.served:
                self.served[resource.name] = Served(
                    resource.name,
                    self._folder,
                    lambda: self.standing,
                    allocated=self._allocated,
                    left=self._wake.set,
                )
        for each in self.served.values():
            each.changed()
        self._wake.set()

    def repeat(self) -> bool:
        """Send all lists again; False where no kubelet follows one.

        It writes what it knows of devices at each list (1.34 to 1.37).
        """
        for each in self.served.values():
            each.repeat()
        return any(each.is_followed for each in self.served.values())

    def recent(self) -> dict[str, frozenset[str]]:
        """What was handed out lately, by resource."""
        return {name: each.recent() for name, each in self.served.items()}

    async def run(self) -> None:
        """Serve until cancelled."""
        self._clear()
        try:
            while True:
                self._wake.clear()
                kubelet = identity(self._folder / deviceplugins.KUBELET_SOCKET)
                async with asyncio.TaskGroup() as group:
                    looks = [group.create_task(each.look(kubelet)) for each in self.served.values()]
                is_settled = all(look.result() for look in looks)
                pause = following.SETTLED_SECONDS if is_settled else following.LOOK_SECONDS
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
        finally:
            async with asyncio.TaskGroup() as group:
                for each in self.served.values():
                    group.create_task(each.close())

    def _clear(self) -> None:
        """Remove sockets that a killed plugin left, for the kubelet would go on dialling them."""
        sockets.clear(self._folder.glob(f"{_SOCKET_PREFIX}*.sock"))


_SOCKET_PREFIX = "nvidia-"


def socket_name(resource: str) -> str:
    """The socket of a resource: `nvidia-gpu.sock`."""
    return f"{_SOCKET_PREFIX}{resource.removeprefix(model.PREFIX)}.sock"


def identity(path: Path) -> tuple[int, int] | None:
    """What tells a socket file from the one that was there before: inode and time of change."""
    stamp = root.Root().stamp(path.as_posix())
    return None if stamp is None else (stamp[0], stamp[2])
