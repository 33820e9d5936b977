# SPDX-License-Identifier: Apache-2.0
"""Put the program of the CDI hooks where the container runtime of the node can run it.

The runtime runs hooks on the node, so the program of the image is copied into the folder
of the plugin that names it (`dra` or `deviceplugin`), under a name with its checksum: a newer
image adds a file and never replaces one that a runtime may be running. The path is the same
on the node.
"""

from __future__ import annotations

from pathlib import Path

from gpudeck import logs
from gpudeck.errors import NotFoundError
from gpudeck.host import files, programs, root

log = logs.get(__name__)

_MODE = 0o755
_BESIDE = ("gpudeck-memory-limits",)
"""Programs of our own in the same folder of the image; makers name them in their edits."""


def install(program: Path, data_dir: Path) -> str:
    """Copy `program` and ours beside it if they are not there yet.

    Returns the path of `program` on the node, "" where the image has none.
    Blocks for some milliseconds: use a thread. Raises GpudeckError of `host.files`.
    """
    for name in _BESIDE:
        _copy(program.with_name(name), data_dir)
    return _copy(program, data_dir)


def _copy(program: Path, data_dir: Path) -> str:
    try:
        content = root.Root().read_bytes(program.as_posix())
    except NotFoundError:
        log.info("The image has no program for CDI hooks", path=program)
        return ""
    folder = data_dir / "bin"
    target = folder / programs.installed_name(program.name, content)
    stamp = root.Root().stamp(target.as_posix())
    if stamp is None or stamp[1] != len(content):
        root.Root().make_directory(folder.as_posix())
        files.write_atomic(target, content, mode=_MODE)
        log.info("Installed the program for CDI hooks", path=target)
    return str(target)
