# SPDX-License-Identifier: Apache-2.0
"""Write a simulated host below a folder: the second of the views of one machine.

The lab calls `write` for each node, binds what `binds` says and mounts the folder into
pods as the host's root; tests point a component's `--host-root` at it. Everything that it
writes is described by `tree_system`, `tree_machine`, `tree_pci` and `tree_driver` first.
It never starts a process and never mounts; the paths it wrote are remembered in the
simulation folder, so that a second `write` with another machine leaves nothing behind.
"""

from __future__ import annotations

import json
from pathlib import Path

from gpudeck import errors
from gpudeck.lab import machine, tree, tree_driver, tree_machine, tree_pci, tree_system

_WRITTEN = "written-paths.json"
_LIVE = "proc/driver/nvidia"


def write(
    host: machine.Machine,
    root: Path,
    *,
    simulation: Path,
    artifacts: Path | None = None,
    boot_id: str,
) -> None:
    """Make `root` the root folder of `host`, and `simulation` hold its live part of /proc.

    `artifacts` is the folder of `simulation.build_native`; without it the driver's
    libraries are stand-ins. Safe to repeat, also after an interruption or with another
    machine. Raises ForbiddenError where device nodes may not be made.
    """
    described = describe(host, artifacts=artifacts, boot_id=boot_id)
    simulation.mkdir(parents=True, exist_ok=True)
    record = simulation / _WRITTEN
    previous = json.loads(record.read_text()) if record.is_file() else []
    _remember(record, sorted({*previous, *described}))
    tree.apply(described, root, previous=previous)
    tree.apply(tree_driver.live(host), simulation / _LIVE)
    _remember(record, sorted(described))


def describe(host: machine.Machine, *, artifacts: Path | None = None, boot_id: str) -> tree.Tree:
    """Return the whole tree of `host` as a value."""
    return {
        **tree_system.describe(host, boot_id=boot_id),
        **tree_machine.describe(host),
        **tree_pci.describe(host),
        **tree_driver.describe(host, artifacts),
    }


def binds(host: machine.Machine, root: Path, simulation: Path) -> list[tuple[Path, Path]]:
    """List the (source, target) folders that a node binds over the tree, in its mount namespace.

    The mock NVML keeps /proc/driver/nvidia in the simulation folder in step with MIG.
    """
    if host.maker != "nvidia":
        return []
    return [(simulation / _LIVE, root / _LIVE)]


def hotplug_remove(host: machine.Machine, root: Path, address: str) -> None:
    """Take the card at `address` out of /sys and /proc, as a surprise removal does.

    Device nodes stay, as they do on a real host. Raises NotFoundError for no such card.
    """
    host.card_at(address)
    tree.remove(root, _card(host, address))


def hotplug_add(host: machine.Machine, root: Path, address: str) -> None:
    """Put the card at `address` back where `hotplug_remove` took it from."""
    host.card_at(address)
    tree.apply(_card(host, address), root)


def lose(host: machine.Machine, root: Path, address: str) -> None:
    """Let the card's configuration space read all ones: it is off the bus but not unplugged."""
    _config(host, root, address).write_bytes(b"\xff" * tree_pci.CONFIG_BYTES)


def find(host: machine.Machine, root: Path, address: str) -> None:
    """Undo `lose`."""
    host.card_at(address)
    tree.apply(tree_pci.card_paths(host, address), root)


def _config(host: machine.Machine, root: Path, address: str) -> Path:
    host.card_at(address)
    config = root / tree_pci.folder_of(host, address) / "config"
    if not config.is_file():
        raise errors.NotFoundError(
            f"{address}: the card is unplugged; plug it in first",
            reason="CardUnplugged",
        )
    return config


def _card(host: machine.Machine, address: str) -> tree.Tree:
    below = tree_pci.card_paths(host, address)
    pci = tree_pci.folder_of(host, address)
    drm = {
        path: entry
        for path, entry in tree_driver.drm(host).items()
        if path.startswith(f"{pci}/") or _leads_to(path, entry, pci)
    }
    driver = tree_driver.card_paths(host, address)
    return below | drm | {f"{_LIVE}/{path}": entry for path, entry in driver.items()}


def _leads_to(path: str, entry: tree.Entry, folder: str) -> bool:
    if not isinstance(entry, tree.Link) or not path.startswith("sys/"):
        return False
    return folder.removeprefix("sys/") + "/" in entry.target


def _remember(record: Path, paths: list[str]) -> None:
    fresh = record.with_suffix(".new")
    fresh.write_text(json.dumps(paths))
    fresh.replace(record)
