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
    """The specs of one kind in the CDI folder as this process sees it, e.g. /var/run/cdi."""

    def __init__(self, path: Path, kind: str = rendering.KIND) -> None:
        self.path = path
        self._kind = kind

    def write(self, claim_uid: str, content: bytes, *, durable: bool = True) -> None:
        """Make the claim's spec hold `content`; makes the folder if it is missing."""
        file = self._file(claim_uid)
        try:
            files.write_atomic(file, content, mode=0o644, durable=durable)
        except NotFoundError:
            root.Root().make_directory(self.path.as_posix())
            files.write_atomic(file, content, mode=0o644, durable=durable)

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
        names = root.Root().list(self.path.as_posix())
        found = (rendering.claim_of(name, self._kind) for name in names)
        return sorted(uid for uid in found if uid)

    def remove_leftovers(self) -> int:
        """Remove our half-written files of a killed writer; only while no other writes."""
        prefix = "." + rendering.file_name("", self._kind).removesuffix(".json")
        left = list(self.path.glob(f"{prefix}*.tmp"))
        return sum(files.remove(path) for path in left)

    def _file(self, claim_uid: str) -> Path:
        return self.path / rendering.file_name(claim_uid, self._kind)
