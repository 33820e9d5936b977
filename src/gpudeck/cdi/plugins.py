# SPDX-License-Identifier: Apache-2.0
"""How the device plugin's CDI files are named, and how they go when its mode ends.

The device plugin leaves its files, for it may end at any instant, and its mode may come back
before another has begun. The DRA plugin removes them when it takes the node over: the state file
shows that a device plugin of ours was here, for NVIDIA's own names its files alike. Calls
block; use a thread.
"""

from __future__ import annotations

from pathlib import Path

from gpudeck import logs
from gpudeck.host import files, root

log = logs.get(__name__)

VENDOR = "k8s.device-plugin.nvidia.com"
"""As NVIDIA's device plugin 0.20 calls it, so that pods keep the names that they were given."""
STATE_FILE = "device-plugin.json"
"""In the plugins' common folder: the device plugin's last good config."""


def file_name(kind: str) -> str:
    """The file of a class of devices."""
    return f"{VENDOR}-{kind}.json"


def remove_leftovers(cdi_root: Path, data_dir: Path) -> int:
    """Remove half-written files of a device plugin that was killed; only while no other writes."""
    left = [*cdi_root.glob(f".{VENDOR}-*.tmp"), *data_dir.glob(f".{STATE_FILE}.*.tmp")]
    return sum(files.remove(path) for path in left)


def is_left(data_dir: Path) -> bool:
    """Whether a device plugin of ours was here since its files were last removed."""
    return root.Root().stamp((data_dir / STATE_FILE).as_posix()) is not None


def remove(cdi_root: Path, data_dir: Path) -> bool:
    """Remove what a device plugin of ours left in both folders; False if there was none."""
    if not is_left(data_dir):
        return False
    for name in root.Root().list(cdi_root.as_posix()):
        if name.startswith(f"{VENDOR}-") and name.endswith(".json"):
            files.remove(cdi_root / name)
    # The state goes last: as long as it is there, a file may be left.
    files.remove(data_dir / STATE_FILE)
    log.info("Removed what the device plugin had made on the node")
    return True
