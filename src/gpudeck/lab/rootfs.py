# SPDX-License-Identifier: Apache-2.0
"""A node's root: a folder of its own below which the machine's programs are mounted read-only.

Inside, everything stands where it stands on a real node (/var/lib/kubelet, /run/containerd,
/etc/kubernetes), and nothing that a node writes reaches the machine. The folder is the
node's disk and outlives a reboot; /run, /dev, /tmp and /mnt/host are memory and do not.
`script` is the node's first process: it mounts, changes the root and then reaps orphans
until the lab ends it. Pure but for `lay`.
"""

from __future__ import annotations

import dataclasses
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
FOLDERS = (
    "dev etc/cdi etc/cni/net.d etc/containerd etc/kubernetes home mnt opt/lab/bin proc root run sys"
    " tmp var/lib var/log/pods var/log/containers var/tmp var/cache .old"
)
COPIED = ("passwd", "group", "nsswitch.conf", "protocols", "services", "ld.so.cache", "os-release")
# name, major, minor: what a container runtime and ordinary programs expect of /dev.
DEVICES = (
    ("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9),
    ("kmsg", 1, 11), ("tty", 5, 0),
)  # fmt: skip
BINARIES = "/opt/lab/bin"
PARTS = "/opt/lab/parts"
HOST = "/mnt/host"
SIMULATION = "/mnt/simulation"
_REAP = "while :; do sleep 2147483647 & wait; done"


def programs(folder: Path) -> dict[str, Path]:
    """The lab's programs by name, each at the file it really is: the folder may hold links."""
    return {path.name: path.resolve() for path in sorted(folder.iterdir()) if path.is_file()}


def lay(
    root: Path,
    node: str,
    machine_id: str,
    *,
    programs: Mapping[str, Path],
    machine_root: Path = Path("/"),
) -> list[str]:
    """Make the folders and small files of a node's root; return what must be mounted into it."""
    for folder in FOLDERS.split():
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    _link(root / "var/run", "../run")
    for name in COPIED:
        if (machine_root / "etc" / name).is_file():
            shutil.copyfile(machine_root / "etc" / name, root / "etc" / name)
    (root / "etc/hostname").write_text(f"{node}\n")
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {node}\n")
    (root / "etc/machine-id").write_text(f"{machine_id}\n")
    # Names are resolved inside the lab or not at all.
    (root / "etc/resolv.conf").write_text("")
    _link(root / "etc/mtab", "../proc/self/mounts")
    for name, file in programs.items():
        (root / PARTS[1:] / file.parent.name).mkdir(parents=True, exist_ok=True)
        _link(root / BINARIES[1:] / name, f"{PARTS}/{file.parent.name}/{file.name}")
    return _system(root, machine_root)


def _system(root: Path, machine_root: Path) -> list[str]:
    """Repeat the machine's layout: /bin is a link into /usr on most, a folder on some."""
    mounted = []
    for name in SYSTEM:
        source = machine_root / name
        if source.is_symlink():
            _link(root / name, str(source.readlink()))
        elif source.is_dir():
            (root / name).mkdir(exist_ok=True)
            mounted.append(name)
    return mounted


def _link(path: Path, target: str) -> None:
    if not path.is_symlink():
        path.symlink_to(target)


@dataclasses.dataclass(frozen=True)
class Sources:
    """What of the machine a node sees, beside its own folder."""

    system: Sequence[str]
    programs: Mapping[str, Path]
    boot_id: Path
    simulation: Path


def script(root: Path, node: str, sources: Sources) -> str:
    """The shell script that becomes a node: mounts, new root, host name, loopback."""
    commands: list[list[str]] = [["mount", "--bind", str(root), str(root)]]
    for name in sources.system:
        commands += _bind_read_only(f"/{name}", str(root / name))
    for folder in sorted({file.parent for file in sources.programs.values()}):
        commands += _bind_read_only(str(folder), f"{root}{PARTS}/{folder.name}")
    commands += [
        ["mount", "-t", "proc", "proc", f"{root}/proc"],
        ["mount", "--bind", str(sources.boot_id), f"{root}/proc/sys/kernel/random/boot_id"],
        ["mount", "-t", "sysfs", "sysfs", f"{root}/sys"],
        ["mount", "--rbind", "/sys/fs/cgroup", f"{root}/sys/fs/cgroup"],
        *_memory(root),
        ["mount", "--bind", str(sources.simulation), f"{root}{SIMULATION}"],
        *_devices(root / "dev"),
        ["hostname", node],
        ["ip", "link", "set", "lo", "up"],
    ]
    lines = ["set -e", *(shlex.join(command) for command in commands)]
    lines += [
        f"cd {shlex.quote(str(root))}",
        "pivot_root . .old",
        "cd /",
        "umount -l /.old",
        # The kubelet and CSI-like pods pass mounts on to containers by shared propagation.
        "mount --make-rshared /",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "echo booted >&0",
        "exec </dev/null",
        _REAP,
    ]
    return "\n".join(lines) + "\n"


def _bind_read_only(source: str, target: str) -> list[list[str]]:
    return [
        ["mount", "--rbind", source, target],
        ["mount", "-o", "remount,bind,ro", target],
    ]


def _memory(root: Path) -> list[list[str]]:
    mounts = [["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", f"{root}/dev"]]
    for path, mode in (("run", "755"), ("tmp", "1777"), ("mnt", "755")):
        mounts.append(["mount", "-t", "tmpfs", "-o", f"mode={mode}", "tmpfs", f"{root}/{path}"])
    folders = ("mnt/host", "mnt/simulation", "run/cdi", "run/netns", "run/lock")
    return [*mounts, ["mkdir", "-p", *(f"{root}/{folder}" for folder in folders)]]


def _devices(dev: Path) -> list[list[str]]:
    commands = [
        ["mknod", "-m", "666", f"{dev}/{name}", "c", str(major), str(minor)]
        for name, major, minor in DEVICES
    ]
    commands.append(["mkdir", f"{dev}/pts", f"{dev}/shm", f"{dev}/mqueue"])
    options = "newinstance,ptmxmode=0666,mode=0620,gid=5"
    commands += [
        ["mount", "-t", "devpts", "-o", options, "devpts", f"{dev}/pts"],
        ["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", f"{dev}/shm"],
        ["mount", "-t", "mqueue", "mqueue", f"{dev}/mqueue"],
    ]
    links = (
        ("pts/ptmx", "ptmx"), ("/proc/self/fd", "fd"), ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"), ("/proc/self/fd/2", "stderr"),
    )  # fmt: skip
    return [*commands, *(["ln", "-s", target, f"{dev}/{name}"] for target, name in links)]
