# SPDX-License-Identifier: Apache-2.0
"""The files by which the adapter and `gpudeck mps-control` know of each other.

Below /run/gpudeck/mps of the node each card has a folder, named by its address. A file in
`shares` for each prepared share, which holds the card's UUID, is the wish for a daemon;
`state.json` is what came of it. `lock` is held while mps-control lives. /run is
emptied by a reboot, as cards and claims are. Both sides write by a rename.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from gpudeck import errors
from gpudeck.devices.identities import PciAddress
from gpudeck.host import files
from gpudeck.host import root as host

PROGRAM = "nvidia-cuda-mps-control"
FOLDER = "/run/gpudeck/mps"
_LOCK = f"{FOLDER}/lock"
_SHARE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,251}", re.ASCII)


class State(msgspec.Struct, frozen=True):
    """A daemon that was started and has not been ended since."""

    ready: bool
    """It answers."""
    message: str = ""
    """What it waits for, in one sentence, where it is not ready."""


class Card:
    """The folder of one card."""

    def __init__(self, root: host.Root, address: str) -> None:
        self._root = root
        self.address = str(PciAddress.parse(address))
        self.folder = f"{FOLDER}/{PciAddress.parse(address).dashed}"
        self.pipe = f"{self.folder}/pipe"
        """Where the daemon has its sockets: CUDA_MPS_PIPE_DIRECTORY."""
        self.log = f"{self.folder}/log"
        self.shm = f"{self.folder}/shm"
        """What is /dev/shm for the daemon and for all its clients."""
        self._shares = f"{self.folder}/shares"
        self._state = f"{self.folder}/state.json"

    def shares(self) -> tuple[str, ...]:
        """The shares that want a daemon, in order."""
        return tuple(each for each in self._root.list(self._shares) if _SHARE.fullmatch(each))

    def uuid(self) -> str | None:
        """The card that a daemon is wanted for; None where none is."""
        for share in self.shares():
            try:
                return self._root.read_text(f"{self._shares}/{share}").strip()
            except errors.NotFoundError:
                continue  # It was given back at this moment.
        return None

    def add_share(self, share_id: str, uuid: str) -> bool:
        """Want a daemon for a share; False if it is known already.

        Raises InvalidError for an id that cannot be a file's name.
        """
        if not _SHARE.fullmatch(share_id):
            allowed = "letters, digits, dots, hyphens and underscores"
            raise errors.not_valid("share id", share_id, allowed, reason="InvalidShareId")
        if share_id in self.shares():
            return False
        self._root.make_directory(self._shares)
        self._root.write_atomic(f"{self._shares}/{share_id}", f"{uuid}\n".encode())
        return True

    def remove_share(self, share_id: str) -> None:
        """Want no daemon for the share any more; nothing happens if it is not known."""
        if _SHARE.fullmatch(share_id):
            self._root.unlink(f"{self._shares}/{share_id}")

    def state(self) -> State | None:
        """The card's daemon; None where there is none. One that cannot be read is not ready."""
        try:
            content = self._root.read_bytes(self._state)
        except errors.NotFoundError:
            return None
        try:
            return msgspec.json.decode(content, type=State)
        except msgspec.DecodeError:
            return State(ready=False, message=f"{self._state} cannot be read.")

    def write_state(self, state: State | None) -> None:
        """Tell of the daemon; None that there is none."""
        if state is None:
            self._root.unlink(self._state)
        else:
            self._root.make_directory(self.folder)
            self._root.write_atomic(self._state, msgspec.json.encode(state))


def cards(root: host.Root) -> list[Card]:
    """The cards that have a folder."""
    found = []
    for name in root.list(FOLDER):
        try:
            found.append(Card(root, name))
        except errors.InvalidError:
            continue  # The lock.
    return found


def lock(root: host.Root) -> Path:
    """The lock file of mps-control; its folder is made."""
    root.make_directory(FOLDER)
    return root.real(_LOCK)


def is_served(root: host.Root) -> bool:
    """Whether mps-control runs on the node."""
    return files.is_locked(root.real(_LOCK))
