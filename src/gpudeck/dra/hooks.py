# SPDX-License-Identifier: Apache-2.0
"""Put the program of the CDI hooks where the container runtime of the node can run it.

The runtime runs hooks on the node, so the program of the image is copied into the
plugin's own folder, under a name with its checksum: a newer image adds a file and
never replaces one that a runtime may be running. The path is the same on the node.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from gpudeck import logs
from gpudeck.errors import NotFoundError
from gpudeck.host import files, root

log = logs.get(__name__)

_MODE = 0o755


def install(program: Path, data_dir: Path) -> str:
    """Copy `program` if it is not there yet; return its path on the node, "" without a program.

    Blocks for some milliseconds: use a thread. Raises GpudeckError of `host.files`.
    """
    try:
        content = root.Root().read_bytes(program.as_posix())
    except NotFoundError:
        log.info("The image has no program for CDI hooks", path=program)
        return ""
    folder = data_dir / "bin"
    target = folder / f"{program.name}-{hashlib.sha256(content).hexdigest()[:8]}"
    stamp = root.Root().stamp(target.as_posix())
    if stamp is None or stamp[1] != len(content):
        root.Root().make_directory(folder.as_posix())
        files.write_atomic(target, content, mode=_MODE)
        log.info("Installed the program for CDI hooks", path=target)
    return str(target)
