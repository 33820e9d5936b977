# SPDX-License-Identifier: Apache-2.0
"""A guest with a kernel of its own: an initramfs of given files, run by emulation to its end.

Programs bring the shared libraries that they have on this machine. The script runs on a
node with cgroups of the version wanted; what it prints is what the test gets.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tests.qemu import packages

SECONDS = 150
_LIBRARY = re.compile(r"(/\S+) \(0x")
_INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
CGROUPSmount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
exec >/dev/ttyS0 2>&1
sh /script
echo GUEST-ENDS
poweroff -f
"""


_CGROUPS = {
    1: """mount -t tmpfs tmpfs /sys/fs/cgroup
for controller in cpu devices freezer memory pids; do
  mkdir /sys/fs/cgroup/$controller
  mount -t cgroup -o $controller cgroup /sys/fs/cgroup/$controller
done
""",
    2: "mount -t cgroup2 cgroup2 /sys/fs/cgroup\n",
}


class Guest:
    """Files of a guest, gathered below a folder of this machine."""

    def __init__(self, folder: Path, *, cgroup_version: int = 2) -> None:
        self._root = folder / "root"
        self._archive = folder / "initramfs"
        for name in ("bin", "dev", "proc", "sys", "run", "tmp", "usr", "lib", "lib64"):
            (self._root / name).mkdir(parents=True)
        self.add_program("/bin/busybox", Path(str(shutil.which("busybox"))))
        self.write("/init", _INIT.replace("CGROUPS", _CGROUPS[cgroup_version]))

    def write(self, path: str, text: str) -> None:
        """Put an executable text there."""
        self._place(path).write_text(text)
        self._place(path).chmod(0o755)

    def add_program(self, path: str, source: Path) -> None:
        """Put a program or library there, and what it is linked with."""
        shutil.copy(source, self._place(path))
        listed = subprocess.run(["ldd", source], capture_output=True, text=True, check=False)
        for library in _LIBRARY.findall(listed.stdout):
            if not self._place(library).exists():
                shutil.copy(library, self._place(library))

    def run(self, script: str) -> str:
        """Start, run the script to its end, and return what the guest wrote."""
        self.write("/script", script)
        self._pack()
        done = subprocess.run(
            [
                *("qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max"),
                *("-m", "768", "-smp", "1", "-nographic", "-no-reboot", "-nic", "none"),
                *("-kernel", str(packages.kernel()), "-initrd", str(self._archive)),
                *("-append", "console=ttyS0 quiet panic=-1"),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=SECONDS,
        )
        output = done.stdout.replace("\r", "")
        assert "GUEST-ENDS" in output, output + done.stderr
        return output

    def _place(self, path: str) -> Path:
        place = self._root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def _pack(self) -> None:
        names = ["."]
        names += [str(path.relative_to(self._root)) for path in sorted(self._root.rglob("*"))]
        command = ["busybox", "cpio", "-o", "-H", "newc"]
        text = "\n".join(names).encode()
        with self._archive.open("wb") as archive:
            subprocess.run(command, cwd=self._root, input=text, stdout=archive, check=True)
