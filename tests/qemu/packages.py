# SPDX-License-Identifier: Apache-2.0
"""What a guest is made of, from Debian packages: `python -m tests.qemu.packages` gets it as root.

The kernel is unpacked and not installed, so that nothing of this machine's boot is touched.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from gpudeck.lab import places

PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "runc": "runc",
}
_KERNEL = "linux-image-cloud-amd64"


def kernel() -> Path:
    """Where the unpacked kernel is, if it is."""
    return places.cache() / "guest" / "vmlinuz"


def missing() -> str:
    """Say what a guest lacks; "" when it can be made."""
    lacking = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    if not kernel().is_file():
        lacking.append(_KERNEL)
    if not lacking:
        return ""
    return f"{', '.join(lacking)} missing; `make qemu-packages` gets what is missing"


def _get_kernel() -> None:
    depends = _output("apt-cache", "depends", _KERNEL)
    package = re.search(r"Depends: (linux-image-\S+-cloud-amd64)", depends)
    if package is None:
        raise SystemExit(f"{_KERNEL} names no kernel: {depends}")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", package[1]], cwd=folder, check=True)
        archive = next(Path(folder).glob("*.deb"))
        subprocess.run(["dpkg-deb", "-x", archive, f"{folder}/tree"], check=True)
        kernel().parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(next(Path(folder, "tree/boot").glob("vmlinuz-*")), kernel())


def _output(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Install and unpack what is missing."""
    wanted = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    if wanted:
        install = ["apt-get", "install", "--yes", "--no-install-recommends", *wanted]
        subprocess.run(install, check=True)
    if not kernel().is_file():
        _get_kernel()


if __name__ == "__main__":
    main()
