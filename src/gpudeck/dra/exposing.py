# SPDX-License-Identifier: Apache-2.0
"""The files by which containers are told of their devices, and the CDI specs that mount them.

`preparing` writes them before it answers and removes them when a claim is given back;
`ledger` removes those of claims that nobody holds. On the node they lie flat in one folder,
named by the claim's UID and the request, so no name of a user's makes a path, and a claim
that is made again under the same name never meets the files of the one before.

No write waits for the disk: each Prepare compares what is there with what should be, and
after a power cut all claims are prepared anew. Calls block; use a thread.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from gpudeck.cdi import rendering, spec
from gpudeck.cdi.files import Folder
from gpudeck.dra import metadata
from gpudeck.dra.allocations import Reference
from gpudeck.dra.checkpoint import Entry
from gpudeck.errors import NotFoundError
from gpudeck.host import files, root

FOLDER = "dra-device-metadata"
_SUFFIX = ".json"
_OPTIONS = ("ro", "nosuid", "nodev", "noexec", "bind")


class Exposure:
    """What the containers of this node are told; `is_wanted` is the administrator's choice."""

    def __init__(self, data_dir: Path, cdi_root: Path, *, is_wanted: bool = True) -> None:
        self.is_wanted = is_wanted
        self._folder = data_dir / FOLDER
        self._specs = Folder(cdi_root, rendering.METADATA_KIND)

    def is_whole(self, claim: Reference, entry: Entry) -> bool:
        """Whether the files of a prepared claim are as they should."""
        contents, rendered = self._rendered(claim, entry)
        return not contents or (
            all(_read(path) == content for path, content in contents.items())
            and self._specs.read(claim.uid) == rendered
        )

    def write(self, claim: Reference, entry: Entry) -> None:
        """Make the files of a prepared claim be as they should."""
        contents, rendered = self._rendered(claim, entry)
        for path, content in contents.items():
            try:
                files.write_atomic(path, content, mode=0o644, durable=False)
            except NotFoundError:
                root.Root().make_directory(self._folder.as_posix())
                files.write_atomic(path, content, mode=0o644, durable=False)
        if contents:
            self._specs.write(claim.uid, rendered, durable=False)

    def _rendered(self, claim: Reference, entry: Entry) -> tuple[dict[Path, bytes], bytes]:
        """What each file is to hold, and the spec that mounts them; without files there is none."""
        told = entry.metadata
        if told is None:
            return {}, b""
        contents = metadata.files(claim, entry.devices, told)
        mounts = {
            request: spec.Mount(
                host_path=str(self._file(claim.uid, request)),
                container_path=metadata.path_in_container(claim, request, told.pod_claim_name),
                options=_OPTIONS,
            )
            for request in contents
        }
        by_path = {self._file(claim.uid, name): content for name, content in contents.items()}
        return by_path, rendering.render_metadata(claim.uid, mounts)

    def remove(self, claim_uid: str) -> None:
        """Remove all files of a claim; nothing happens if there are none."""
        # The spec goes first, so that none ever names a file that is gone.
        self._specs.remove(claim_uid)
        for name in self._names():
            if _claim_of(name) == claim_uid:
                files.remove(self._folder / name)

    def sweep(self, kept: Collection[str]) -> int:
        """Remove the files of all claims but those kept and of killed writers; how many claims.

        Only while no other writes.
        """
        files.remove_leftovers(self._folder)
        self._specs.remove_leftovers()
        gone = {*self._specs.claims(), *filter(None, map(_claim_of, self._names()))} - {*kept}
        for uid in gone:
            self.remove(uid)
        return len(gone)

    def _names(self) -> list[str]:
        return root.Root().list(self._folder.as_posix())

    def _file(self, claim_uid: str, request: str) -> Path:
        return self._folder / f"{claim_uid}_{request}{_SUFFIX}"


def _read(path: Path) -> bytes | None:
    try:
        return files.read(path)
    except NotFoundError:
        return None


def _claim_of(name: str) -> str | None:
    """The UID of the claim to which a file belongs, None for a file of others."""
    uid, separator, _ = name.partition("_")
    is_ours = separator and name.endswith(_SUFFIX) and not name.startswith(".")
    return uid if is_ours else None
