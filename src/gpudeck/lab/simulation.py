# SPDX-License-Identifier: Apache-2.0
"""The mock NVML's state of one simulated host: made from a machine, turned by knobs.

`build_native` compiles the C sources once per content; `Simulation.create` writes a
machine's facts into the state file that every process and container on the host maps.
The knobs go through `simctl`, which alone knows the file's layout; a caller names a card
by its index, its PCI address or its UUID. It says what a fault is, never what gpudeck
ought to make of it. It blocks while `make` or `simctl` runs: asynchronous callers use
a thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpudeck
from gpudeck import errors
from gpudeck.lab import description, machine, places, processes

SOURCES = Path(gpudeck.__file__).parents[2] / "native"
"""The C sources of an editable install; an installed wheel needs GPUDECK_NATIVE_DIR."""

Card = int | str
"""A card by index, PCI address or UUID; "all" for every one."""

_SUFFIXES = {".c", ".h", ".map", ""}


def build_native(cache: Path, *, progress: Callable[[str], None] = lambda _: None) -> Path:
    """Build the native artefacts unless `cache` holds them; return their folder.

    The folder's name is a hash of the sources and of the compiler's version. Two callers
    at once build once. `$GPUDECK_NATIVE_DIR` names sources (or, without a Makefile,
    finished artefacts) elsewhere. Raises NotFoundError without sources or compiler and
    TerminalError with the compiler's last lines.
    """
    sources = Path(os.environ.get("GPUDECK_NATIVE_DIR", SOURCES))
    if not (sources / "Makefile").is_file():
        return _finished(sources)
    folder = cache / "native" / _fingerprint(sources)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / "lock"):
        if not folder.is_dir():
            progress("Building the mock driver library")
            _make(sources, folder)
    return folder


def _finished(folder: Path) -> Path:
    if (folder / "libnvidia-ml.so.1").is_file():
        return folder
    raise errors.NotFoundError(
        f"{folder}: neither the sources nor the artefacts of the mock driver are there; "
        "set GPUDECK_NATIVE_DIR to the native folder of a checkout",
        reason="NativeSourcesNotFound",
    )


def _fingerprint(sources: Path) -> str:
    files = [path for path in sources.rglob("*") if path.is_file() and path.suffix in _SUFFIXES]
    return places.digest(files, _compiler(), relative_to=sources)


def _compiler() -> str:
    compiler = os.environ.get("CC", "gcc")
    try:
        return subprocess.run(
            [compiler, "--version"], check=True, capture_output=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise errors.NotFoundError(
            f"{compiler}: the mock driver library needs a C compiler and make",
            reason="CompilerNotFound",
        ) from error


def _make(sources: Path, folder: Path) -> None:
    fresh = Path(tempfile.mkdtemp(prefix=".building-", dir=folder.parent))
    try:
        processes.build(["make", "--silent", "-C", str(sources), f"OUT={fresh}"])
        fresh.chmod(0o755)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Simulation:
    """One host's state file and the `simctl` that turns its knobs."""

    def __init__(self, folder: Path, *, artifacts: Path) -> None:
        self.folder = folder
        self._simctl = artifacts / "simctl"

    @classmethod
    def create(cls, host: machine.Machine, folder: Path, *, artifacts: Path) -> Simulation:
        """Write the state of `host` into `folder`, with every card healthy and idle.

        Replaces a state that is there: processes that map the old one keep it.
        """
        simulation = cls(folder, artifacts=artifacts)
        folder.mkdir(parents=True, exist_ok=True)
        simulation._run("create", str(folder), given=description.render(host))
        return simulation

    def show(self) -> dict[str, Any]:
        """Return the state as `simctl show --json` prints it."""
        shown: dict[str, Any] = json.loads(self._run("show", str(self.folder), "--json"))
        return shown

    def xid(self, card: Card, number: int, *, mig: tuple[int, int] | None = None) -> None:
        """Raise an Xid event; `mig` is a GPU and a compute instance id that it is about."""
        scope = "" if mig is None else f":{mig[0]}:{mig[1]}"
        self.turn(card, xid=f"{number}{scope}")

    def ecc(
        self,
        card: Card,
        count: int,
        *,
        corrected: bool = False,
        aggregate: bool = False,
        location: str = "memory",
    ) -> None:
        """Set an ECC counter; location is l1, l2, memory, registers, cbu or sram."""
        kind = "corrected" if corrected else "uncorrected"
        counter = "aggregate" if aggregate else "volatile"
        self.turn(card, **{f"ecc.{kind}.{counter}.{location}": count})

    def lose(self, card: Card, *, unknown: bool = False) -> None:
        """Let the card fall off the bus (Xid 79).

        Its calls answer GPU_IS_LOST, or UNKNOWN with `unknown`: both are seen on hardware.
        The host tree changes by `hosttree.lose` or `hosttree.hotplug_remove`.
        """
        self.turn(card, lose=999 if unknown else 15)

    def return_(self, card: Card) -> None:
        """Bring a lost card back."""
        self.turn(card, **{"return": 1})

    def temperature(self, card: Card, degrees: int | None) -> None:
        """Set the temperature in degrees Celsius; None lets it follow the load."""
        self.turn(card, temperature="auto" if degrees is None else degrees)

    def busy(
        self,
        card: Card,
        *,
        pid: int,
        memory_mib: int,
        percent: int = 100,
        mig: tuple[int, int] | None = None,
    ) -> None:
        """Pretend that process `pid` holds memory and load on the card; `idle` ends it."""
        scope = "" if mig is None else f":{mig[0]}:{mig[1]}"
        self.turn(card, busy=f"{pid}:{memory_mib}:{percent}{scope}")

    def idle(self, card: Card, *, pid: int = 0) -> None:
        """End the pretended process `pid`, or all of them."""
        self.turn(card, idle=pid)

    def fail(self, card: Card, code: int, *, function: str | None = None) -> None:
        """Let the card's calls, or those of one NVML function, answer `code`; 0 ends it."""
        self.turn(card, **{"fail" if function is None else f"fail.{function}": code})

    def hang(self, card: Card, *, function: str | None = None) -> None:
        """Let calls block until `clear` (or until their process is killed)."""
        if function is None:
            self.turn(card, hang=1)
        else:
            self.turn(card, **{f"fail.{function}": "hang"})

    def slow(self, card: Card, milliseconds: int) -> None:
        """Let every call on the card take so long; 0 ends it."""
        self.turn(card, **{"slow-ms": milliseconds})

    def clear(self, card: Card) -> None:
        """End failing, hanging, slowness and fixed readings; counters and losses stay."""
        self.turn(card, clear=1)

    def reset(self, card: Card) -> None:
        """Reset the card as the driver would: pending modes and remapped rows take effect."""
        self.turn(card, reset=1)

    def turn(self, card: Card, **knobs: object) -> None:
        """Set any of simctl's knobs (`_` for `-`) on a card.

        Raises InvalidError with what simctl has against the name, the value or the card.
        """
        assignments = [f"{name.replace('_', '-')}={value}" for name, value in knobs.items()]
        self._run("set", str(self.folder), str(card), *assignments)

    def driver(self, *, version: str | None = None, init_code: int | None = None) -> None:
        """Change the driver's version, or the NVML code that initialising answers (0 = fine)."""
        wanted = {"driver": version, "init": init_code}
        given = [f"{name}={value}" for name, value in wanted.items() if value is not None]
        if given:
            self._run("host", str(self.folder), *given)

    def reboot(self) -> None:
        """Forget what a power cycle forgets: processes, MIG instances, faults, volatile counters.

        Ampere cards keep their MIG mode. The host tree needs a new boot id (`hosttree.write`).
        """
        self._run("reboot", str(self.folder))

    def _run(self, *arguments: str, given: str = "") -> str:
        done = subprocess.run(
            [str(self._simctl), *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise errors.InvalidError(
                f"simctl {' '.join(arguments)}: {done.stderr.strip() or done.returncode}",
                reason="SimulationRefused",
            )
        return done.stdout
