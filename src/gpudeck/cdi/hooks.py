# SPDX-License-Identifier: Apache-2.0
"""Keep the programs of the CDI hooks where the container runtime of the node can run them.

The runtime runs hooks on the node, so the program of the image is copied into the folder
of the plugin that names it (`dra` or `deviceplugin`), under a name with its checksum: a newer
image adds a file and never replaces one that a runtime may be running. The path is the same
on the node. Both plugins look at it from time to time, since somebody may remove it.
"""

from __future__ import annotations

from pathlib import Path

from gpudeck import logs
from gpudeck.errors import GpudeckError, NotFoundError
from gpudeck.host import files, programs, root

log = logs.get(__name__)

AGAIN_SECONDS = 10.0
"""How often whoever names the programs looks at what nobody tells of: whether they, and the
files that name them, are still there."""
_MODE = 0o755
_BESIDE = ("gpudeck-memory-limits",)
"""Programs of our own in the same folder of the image; makers name them in their edits."""


class Hooks:
    """The copies of `program`, and of ours beside it, below `data_dir`."""

    def __init__(self, program: Path, data_dir: Path) -> None:
        self.path = ""
        """Of `program` on the node; "" where it is not, for the image has none or by `failure`."""
        self.failure = ""
        """Why the copies are not there. It costs containers their links, not their cards."""
        self._programs = [*map(program.with_name, _BESIDE), program]
        self._folder = data_dir / "bin"
        self._copies: dict[Path, object] | None = None
        """What each was when it was last made or found whole."""

    def look(self) -> None:
        """Put back what is not there or is not as it was. Blocks for milliseconds: use a thread."""
        try:
            if self._copies is None or any(_stamp(at) != was for at, was in self._copies.items()):
                self._copies = None
                found = [self._copy(each) for each in self._programs]
                self.path = str(found[-1] or "")
                self._copies = {path: _stamp(path) for path in found if path is not None}
        except GpudeckError as error:
            if error.message != self.failure:
                log.warning("The programs for CDI hooks are not on the node", error=error)
            self.path, self.failure = "", error.message
        else:
            self.failure = ""

    def _copy(self, program: Path) -> Path | None:
        try:
            content = root.Root().read_bytes(program.as_posix())
        except NotFoundError:
            log.info("The image has no such program for CDI hooks", path=program)
            return None
        target = self._folder / programs.installed_name(program.name, content)
        if not _holds(target, content):
            root.Root().make_directory(self._folder.as_posix())
            files.write_atomic(target, content, mode=_MODE)
            log.info("Installed a program for CDI hooks", path=target)
        return target


def _holds(path: Path, content: bytes) -> bool:
    try:
        return root.Root().read_bytes(path.as_posix()) == content
    except GpudeckError:
        return False


def _stamp(path: Path) -> object:
    return root.Root().stamp(path.as_posix())
