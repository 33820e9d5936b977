# SPDX-License-Identifier: Apache-2.0
"""Starts the control daemon of a card, and gives it commands. Keeps nothing.

The program is the node's own `nvidia-cuda-mps-control`: `-f` is the daemon in the
foreground, without an option it passes on the commands of its standard input
(Multi-Process Service, release 590). Called by `daemons` alone.
"""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec

from gpudeck import errors
from gpudeck.host import files, processes
from gpudeck.host import root as host
from gpudeck.vendors.nvidia import paths
from gpudeck.vendors.nvidia.mps import confining, places

_START = "from gpudeck.vendors.nvidia.mps import confining; confining.main()"
_SHM = "/dev/shm"
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin"


class Control:
    """The control daemons of one node."""

    def __init__(self, root: host.Root, *, shm_mebibytes: int, answer_seconds: float = 5.0) -> None:
        self._root = root
        self._shm_mebibytes = shm_mebibytes
        self._answer_seconds = answer_seconds

    async def start(self, card: places.Card, uuid: str) -> processes.Child:
        """Start the daemon of a card. It may not answer yet, or end at once.

        Raises NotFoundError where the node has no such program, ForbiddenError where memory
        may not be mounted.
        """
        await asyncio.to_thread(self._make_folders, card)
        environment = {**self._environment(card), "CUDA_VISIBLE_DEVICES": uuid}
        order = msgspec.structs.replace(
            self._order(environment, "-f"),
            shm=str(self._root.real(card.shm)),
            shm_target=str(self._root.real(_SHM)),
        )
        return await self._run(order)

    async def ask(self, card: places.Card, command: str) -> str:
        """The daemon's answer to a command. Raises UnavailableError where it does not answer."""
        order = self._order(self._environment(card))
        child = await self._run(
            msgspec.structs.replace(order, standard_input=f"{command}\n"), pipes=True
        )
        try:
            async with asyncio.timeout(self._answer_seconds):
                done = await child.finished()
        except TimeoutError as error:
            raise errors.UnavailableError(
                f"{card.address}: the MPS daemon did not answer within {self._answer_seconds:g} s",
                reason="MpsDaemonSilent",
            ) from error
        finally:
            if child.status is None:
                await child.kill()
        if done.status != 0:
            said = (done.error_output or done.output).decode(errors="replace").strip()
            raise errors.UnavailableError(
                f"{card.address}: {said or f'{places.PROGRAM} ended with {done.status}'}",
                reason="MpsDaemonSilent",
            )
        return done.output.decode(errors="replace").strip()

    def clear(self, card: places.Card) -> None:
        """Give back the memory of a daemon that has ended. May be repeated."""
        path = self._root.real(card.shm)
        try:
            confining.unmount(path)
        except OSError as error:
            raise files.translated(error, path) from error

    def _make_folders(self, card: places.Card) -> None:
        for folder in (card.pipe, card.log, card.shm):
            self._root.make_directory(folder)
        path = self._root.real(card.shm)
        try:
            confining.mount_memory(path, self._shm_mebibytes)
        except OSError as error:
            raise files.translated(error, path) from error

    def _environment(self, card: places.Card) -> dict[str, str]:
        return {
            "PATH": _PATH,
            "LC_ALL": "C",
            "CUDA_MPS_PIPE_DIRECTORY": card.pipe,
            "CUDA_MPS_LOG_DIRECTORY": card.log,
        }

    def _order(self, environment: dict[str, str], *options: str) -> confining.Order:
        program = paths.find_program(self._root, places.PROGRAM)
        if program is None:
            raise errors.NotFoundError(
                f"the node has no {places.PROGRAM}", reason="MpsNotInstalled"
            )
        return confining.Order(
            parent=os.getpid(),
            root=str(self._root.path),
            arguments=(program, *options),
            environment=environment,
        )

    async def _run(self, order: confining.Order, *, pipes: bool = False) -> processes.Child:
        return await processes.Child.start(
            [sys.executable, "-c", _START, msgspec.json.encode(order).decode()],
            environment=os.environ,
            pipes=pipes,
        )
