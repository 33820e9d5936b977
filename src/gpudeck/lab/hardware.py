# SPDX-License-Identifier: Apache-2.0
"""The cards of a node: its simulation, its host tree, and where both are seen.

A node's folder of the machine holds the simulation; the host tree is written into the
running node's memory at /mnt/host, so that a reboot loses it. A lab whose host root is `/`
has the same tree mounted over the node's own /sys, /proc, /dev and /usr: then the product
finds cards where they are on hardware, and its chart needs no other value.
Called by `cluster` when a node boots and by `cli.lab` for the knobs.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from gpudeck import errors
from gpudeck.lab import hosttree, machine, processes, rootfs, simulation
from gpudeck.lab.state import Folder, Node, Process

# Machines of both architectures are simulated; their programs are always this machine's.
LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu")
_COMPOSED = ("sys/bus", "sys/class", "sys/module", "sys/devices")
_KERNEL = ("system", "virtual", "net")
"""What stays the kernel's own below those: the node's processes read there what they work with."""
_PROC = ("proc/driver", "proc/modules", "proc/devices")


def describe(node: Node) -> machine.Machine:
    """The machine that a node is made from; its cards' identities hold the node's name."""
    assert node.machine is not None
    return machine.load(node.machine, host=node.name)


def simulated(folder: Folder, node: Node, artifacts: Path) -> simulation.Simulation:
    """The knobs of a node's cards."""
    return simulation.Simulation(folder.simulation(node.name), artifacts=artifacts)


def tree(init: Process) -> Path:
    """The host tree of a running node, as the machine's own programs reach it."""
    return Path(f"/proc/{init.pid}/root{rootfs.HOST}")


def install(folder: Folder, node: Node, artifacts: Path, *, host_root: str) -> None:
    """Put the cards into a node that has just booted; a reboot keeps what hardware keeps."""
    assert node.init is not None
    host = describe(node)
    place = folder.simulation(node.name)
    if host.maker == "nvidia":
        if (place / "state").exists():
            simulated(folder, node, artifacts).reboot()
        else:
            simulation.Simulation.create(host, place, artifacts=artifacts)
    root = tree(node.init)
    hosttree.write(host, root, simulation=place, artifacts=artifacts, boot_id=node.boot_id)
    commands = [
        ["mount", "--bind", str(source), str(target)]
        for source, target in hosttree.binds(host, Path(rootfs.HOST), Path(rootfs.SIMULATION))
    ]
    shutil.copyfile(root / "etc/os-release", folder.root(node.name) / "etc/os-release")
    copy_devices(root / "dev", Path(f"/proc/{node.init.pid}/root/dev"))
    if host_root == "/":
        commands += over_root(root)
    script = "\n".join(["set -e", *(shlex.join(command) for command in commands)])
    processes.inside(node.init, ["/bin/sh", "-c", script])


def copy_devices(source: Path, target: Path) -> None:
    """Make the cards' device nodes in a node's own /dev too, as its driver would."""
    for entry in sorted(source.iterdir()):
        found = entry.lstat()
        copy = target / entry.name
        if stat.S_ISCHR(found.st_mode) and not copy.exists():
            os.mknod(copy, found.st_mode, found.st_rdev)
            copy.chmod(stat.S_IMODE(found.st_mode))


def over_root(root: Path, kernel: Path = Path("/")) -> list[list[str]]:
    """Commands, run in a node, that mount its host tree over its own root; `root` is the tree.

    The kernel's CPU and memory files stay: the kubelet reports them as the node's capacity.
    A file of /proc that this `kernel` does not have stays away: /proc takes no new names.
    """
    # A folder that is composed elsewhere can be moved to its place only between private mounts.
    commands = [["mount", "--make-rprivate", "/"]]
    for parent in _COMPOSED:
        names = [entry.name for entry in _entries(root, parent)]
        commands += _compose(parent, [name for name in names if name not in _KERNEL])
    for path in _PROC:
        if (root / path).exists() and (kernel / path).exists():
            commands.append(["mount", "--bind", f"{rootfs.HOST}/{path}", f"/{path}"])
    for parent in ("dev", "etc", "opt"):
        for entry in _entries(root, parent):
            if entry.is_dir() and entry.name not in ("pts", "shm", "mqueue"):
                target = f"/{parent}/{entry.name}"
                commands += [
                    ["mkdir", "-p", target],
                    ["mount", "--bind", f"{rootfs.HOST}{target}", target],
                ]
    # Two lower layers and no upper one: the node sees the driver's files beside its programs.
    layers = f"lowerdir={rootfs.HOST}/usr:/usr"
    commands.append(["mount", "-t", "overlay", "-o", layers, "overlay", "/usr"])
    return [*commands, ["mount", "--make-rshared", "/"]]


def _entries(root: Path, parent: str) -> list[Path]:
    folder = root / parent
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _compose(parent: str, names: Sequence[str]) -> list[list[str]]:
    """A folder of /sys anew: what the kernel has there, but for `names` and its PCI buses.

    sysfs takes no new names, so a folder of memory stands in for it.
    """
    stage = "/run/lab-stage"
    keep = (
        'cd "$1"; for each in *; do case "$each" in pci*) continue;; esac;'
        ' mkdir "$2/$each"; mount --rbind "$each" "$2/$each"; done'
    )
    commands: list[list[str]] = [
        ["mkdir", "-p", stage],
        ["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", stage],
        ["/bin/sh", "-ec", keep, "sh", f"/{parent}", stage],
    ]
    for name in names:
        commands += [
            ["mkdir", "-p", f"{stage}/{name}"],
            ["mount", "--bind", f"{rootfs.HOST}/{parent}/{name}", f"{stage}/{name}"],
        ]
    return [*commands, ["mount", "--move", stage, f"/{parent}"], ["rmdir", stage]]


def environment() -> dict[str, str]:
    """What a shell in a node needs so that the maker's programs run there."""
    return {
        "PATH": f"{processes.NODE_PATH}:{rootfs.HOST}/usr/bin",
        "LD_LIBRARY_PATH": ":".join(f"{rootfs.HOST}/{folder}" for folder in LIBRARIES),
        "GPUDECK_SIMULATION": rootfs.SIMULATION,
    }


def card_addresses(node: Node) -> Sequence[str]:
    """PCI addresses of a node's cards, by index."""
    return [card.address for card in describe(node).cards]


def card_address(node: Node, index: int) -> str:
    """The PCI address of a node's card; InvalidError says which indexes there are."""
    addresses = card_addresses(node)
    if 0 <= index < len(addresses):
        return addresses[index]
    allowed = f"0 to {len(addresses) - 1}"
    raise errors.InvalidError(
        f"INDEX: node {node.name} has no card {index}; allowed: {allowed}",
        reason="CardNotFound",
        field="INDEX",
        allowed=allowed,
    )


def lose(folder: Folder, node: Node, artifacts: Path, address: str, *, unplug: bool) -> None:
    """Let a card fall off the bus; `unplug` takes it out of /sys and /proc too."""
    assert node.init is not None
    simulated(folder, node, artifacts).lose(address)
    act = hosttree.hotplug_remove if unplug else hosttree.lose
    act(describe(node), tree(node.init), address)


def return_(folder: Folder, node: Node, artifacts: Path, address: str) -> None:
    """Put a lost card back, on the bus and into the host tree."""
    assert node.init is not None
    host, root = describe(node), tree(node.init)
    hosttree.hotplug_add(host, root, address)
    hosttree.find(host, root, address)
    simulated(folder, node, artifacts).return_(address)
