# SPDX-License-Identifier: Apache-2.0
"""The specs of this driver in the runtime's folder of CDI files.

Only files with our own prefix are read or removed. A spec is replaced by rename and
readable by everybody, since the runtime may read it at any moment and as another user.
The folder is often a tmpfs: after a reboot it is empty. Calls block; use a thread.
"""

from __future__ import annotations

from pathlib import Path

from gpudeck.cdi import rendering
from gpudeck.errors import NotFoundError
from gpudeck.host import files, root


class Folder:
    """The CDI folder as this process sees it, e.g. /var/run/cdi."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, claim_uid: str, content: bytes) -> None:
        """Make the claim's spec hold `content`; makes the folder if it is missing."""
        file = self._file(claim_uid)
        try:
            files.write_atomic(file, content, mode=0o644)
        except NotFoundError:
            root.Root().make_directory(self.path.as_posix())
            files.write_atomic(file, content, mode=0o644)

    def read(self, claim_uid: str) -> bytes | None:
        """The claim's spec, None if there is none."""
        try:
            return files.read(self._file(claim_uid))
        except NotFoundError:
            return None

    def remove(self, claim_uid: str) -> bool:
        """Remove the claim's spec; False if there was none."""
        return files.remove(self._file(claim_uid))

    def claims(self) -> list[str]:
        """UIDs of the claims that have a spec of ours, sorted."""
        found = map(rendering.claim_of, root.Root().list(self.path.as_posix()))
        return sorted(uid for uid in found if uid)

    def remove_leftovers(self) -> int:
        """Remove our half-written files of a killed writer; only while no other writes."""
        prefix = "." + rendering.file_name("").removesuffix(".json")
        left = list(self.path.glob(f"{prefix}*.tmp"))
        return sum(files.remove(path) for path in left)

    def _file(self, claim_uid: str) -> Path:
        return self.path / rendering.file_name(claim_uid)
