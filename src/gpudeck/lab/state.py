# SPDX-License-Identifier: Apache-2.0
"""What exists of a lab, on disk: written before each thing is made.

A lab is a folder `<state>/labs/<name>/` with `lab.json` (this module's `Lab`), the
certificates, the nodes' roots and the logs. `cluster` writes, `teardown` reads: a killed
`lab up` leaves a record of everything it can have made. Every name that the lab takes
outside its folder (cgroup, interface) is derived from the folder's path, so that labs
never collide and leftovers are found even without the record.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from gpudeck import errors

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
CONTROL_PLANE = "control-plane"


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process by number and start (clock ticks since boot): numbers are used again."""

    pid: int
    start: int


class Node(msgspec.Struct, kw_only=True):
    """One node: `index` decides its addresses, `machine` is None for the control plane."""

    name: str
    index: int
    machine: str | None = None
    boot_id: str = ""
    init: Process | None = None
    daemons: dict[str, Process] = {}
    images: list[str] = []


class Lab(msgspec.Struct, kw_only=True):
    """A lab. `phase` is creating until everything answered once, then up."""

    name: str
    phase: str = "creating"
    created: str = ""
    subnet: int | None = None
    binaries: str = ""
    artifacts: str = ""
    host_root: str = "/mnt/host"
    registry: Process | None = None
    nodes: dict[str, Node] = {}

    def node(self, name: str) -> Node:
        """Return a node by name; InvalidError names those there are."""
        if name in self.nodes:
            return self.nodes[name]
        raise errors.InvalidError(
            f"NODE: {name!r} is not in lab {self.name}; there are: {', '.join(self.nodes)}",
            reason="NodeNotFound",
        )

    def workers(self) -> list[Node]:
        """List the nodes that carry cards, in the order they were added."""
        return [node for node in self.nodes.values() if node.machine is not None]


class Folder:
    """Paths of one lab, and its record and lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = path / "lab.json"
        self.pki = path / "pki"
        self.kubeconfig = path / "kubeconfig"
        self.logs = path / "logs"

    @property
    def name(self) -> str:
        """The lab's name."""
        return self.path.name

    @property
    def digest(self) -> str:
        """Eight hex digits that belong to this folder's path alone."""
        return hashlib.sha256(str(self.path).encode()).hexdigest()[:8]

    @property
    def cgroup(self) -> str:
        """The lab's cgroup, relative to the root of every hierarchy."""
        return f"gpudeck/{self.name}-{self.digest}"

    def node(self, name: str) -> Path:
        """The folder of a node."""
        return self.path / "nodes" / name

    def simulation(self, name: str) -> Path:
        """The folder that holds the state of a node's cards."""
        return self.node(name) / "simulation"

    def root(self, name: str) -> Path:
        """The folder that a node sees as `/`."""
        return self.node(name) / "root"

    def log(self, node: str, daemon: str) -> Path:
        """The log file of a node's daemon; the folder exists afterwards."""
        path = self.logs / node / f"{daemon}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def load(self) -> Lab | None:
        """Read the record; None when there is none or a kill cut the very first write."""
        try:
            return msgspec.json.decode(self.record.read_bytes(), type=Lab)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise errors.InvalidError(
                f"{self.record}: cannot be read: {error}; remove the lab with: "
                f"gpudeck lab down --name {self.name}",
                reason="LabStateUnreadable",
                field=str(self.record),
            ) from error

    def save(self, lab: Lab) -> None:
        """Write the record in one step: a reader or a kill sees the old or the new one."""
        self.path.mkdir(parents=True, exist_ok=True)
        written = self.record.with_suffix(".new")
        written.write_bytes(msgspec.json.format(msgspec.json.encode(lab), indent=2))
        written.replace(self.record)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lab's lock; BusyError when another command changes this lab now.

        The lock is on the folder itself, so that a lab that is gone leaves no lock behind.
        """
        descriptor = self._lock()
        try:
            yield
        finally:
            # Nothing was made in it: a name that nobody uses leaves no folder.
            with contextlib.suppress(OSError):
                self.path.rmdir()
            os.close(descriptor)

    def _lock(self) -> int:
        while True:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(descriptor)
                raise errors.BusyError(
                    f"lab {self.name}: another command is changing it; try again when that is done",
                    reason="LabBusy",
                ) from error
            if self._is(descriptor):
                return descriptor
            os.close(descriptor)  # It was removed, and perhaps made again, before it was ours.

    def _is(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False


def home(environment: Mapping[str, str] | None = None) -> Path:
    """The folder of all labs, below GPUDECK_STATE_DIR, XDG_STATE_HOME or ~/.local/state."""
    env = os.environ if environment is None else environment
    if chosen := env.get("GPUDECK_STATE_DIR"):
        return Path(chosen).absolute() / "labs"
    state = env.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state).absolute() / "gpudeck" / "labs"


def folder(name: str, parent: Path | None = None) -> Folder:
    """Return the folder of a lab by name; InvalidError for a name that cannot be one."""
    if not NAME.fullmatch(name):
        raise errors.InvalidError(
            f"--name: {name!r} is not a lab's name; allowed: lower case letters, digits and "
            "dashes, 1 to 32 characters, a letter or digit at both ends",
            reason="LabNameInvalid",
            field="--name",
        )
    return Folder((parent or home()) / name)


def names(parent: Path | None = None) -> list[str]:
    """List the labs that have a record, running or not."""
    where = parent or home()
    return sorted(path.parent.name for path in where.glob("*/lab.json"))


def running(lab_folder: Folder) -> Lab:
    """Return the lab of a folder; NotFoundError says how to make one."""
    lab = lab_folder.load()
    if lab is None:
        known = ", ".join(names(lab_folder.path.parent)) or "none"
        raise errors.NotFoundError(
            f"lab {lab_folder.name} does not exist (labs: {known}); make it with: gpudeck lab up"
            + ("" if lab_folder.name == "lab" else f" --name {lab_folder.name}"),
            reason="LabNotFound",
        )
    return lab
