# SPDX-License-Identifier: Apache-2.0
"""What is prepared on this node: one versioned JSON file with a checksum, and its entries.

The file is the only memory: two plugins may serve at once during an update, so each
call reads it under the lock of `preparing` and writes it before the lock is given
back. Bytes that this process wrote or read last are not decoded again. It goes through
two states a claim: PrepareStarted before anything is made, PrepareCompleted last. Each
entry holds the bytes of its CDI spec, so that a lost spec is made again without
anybody's help.

Unknown fields are passed over and an entry that cannot be read is set aside, so a
downgrade can still unprepare. A file that is no checkpoint raises `CorruptError`;
`recovering` rebuilds it.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpudeck.api import resource
from gpudeck.api.meta import Wire
from gpudeck.dra.allocations import HeldDevice
from gpudeck.errors import ForbiddenError, InvalidError, NotFoundError, TerminalError
from gpudeck.host import files

VERSION = "v1"
FILE, LOCK = "checkpoint.json", "prepare.lock"
"""Names in the plugin's folder; the lock is held while the file is changed."""
KEPT = 5
"""How many unusable files remain beside the checkpoint."""


class CorruptError(TerminalError):
    """The file cannot be used as a whole."""

    reason = "CheckpointCorrupt"


class State(enum.StrEnum):
    """How far a claim is."""

    STARTED = "PrepareStarted"
    COMPLETED = "PrepareCompleted"
    RECOVERED = "Recovered"
    """Found after the checkpoint was lost: holds its devices, is prepared anew when asked for."""
    RELEASED = "Released"
    """Given back, but what was made for it (a partition, say) is still there."""


class Given(Wire):
    """What the adapter said of a device when it had prepared it."""

    uuid: str = ""
    """What containers see: of the card, or of the partition that was made."""
    limits_memory: bool = False
    """The driver keeps containers to the share's memory."""
    limits_memory_message: str = ""
    """Where a share has an amount: what is kept to it, or why nothing is."""


class Metadata(Wire):
    """What containers of a claim are told of its devices, see `metadata`."""

    pod_claim_name: str | None = None
    """The name by which its pod knows a claim that was made of a template."""
    attributes: dict[str, dict[str, resource.Attribute]] = msgspec.field(default_factory=dict)
    """By the devices' keys."""


class Entry(Wire):
    """One claim. Never changed but replaced, since what was read is kept for the next call."""

    state: State
    namespace: str = ""
    name: str = ""
    devices: list[HeldDevice] = msgspec.field(default_factory=list)
    spec: str | None = None
    """The content of the CDI file; absent until it was made."""
    driver_version: str | None = None
    """Version of the maker's driver whose files the spec names."""
    given: dict[str, Given] | None = None
    """By the devices' keys; absent in an entry of an older release."""
    metadata: Metadata | None = None
    """Absent where containers are told nothing."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.name else "of unknown name"

    @property
    def holds_made(self) -> bool:
        """Whether something was or is to be made for the claim."""
        return any(device.is_made for device in self.devices)

    def released(self) -> Entry:
        """The entry of a claim that is given back while what was made for it is still there."""
        return msgspec.structs.replace(
            self, state=State.RELEASED, spec=None, driver_version=None, metadata=None
        )


class Content(msgspec.Struct):
    """The file in memory. `quarantined` entries are written back as they were found."""

    boot_id: str | None = None
    claims: dict[str, Entry] = msgspec.field(default_factory=dict)
    quarantined: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    is_partial: bool = False
    """Rebuilt without the API server's list of claims, which is still to be looked at."""

    def copy(self) -> Content:
        """Another content with the same entries."""
        return msgspec.structs.replace(
            self, claims=dict(self.claims), quarantined=dict(self.quarantined)
        )

    def forget(self, claim_uid: str) -> bool:
        """Drop the claim; False if it was not there."""
        known = self.claims.pop(claim_uid, None), self.quarantined.pop(claim_uid, None)
        return known != (None, None)


class _File(Wire, omit_defaults=False):
    version: str
    checksum: str
    data: msgspec.Raw


class _Data(Wire):
    boot_id: str | None = msgspec.field(default=None, name="bootID")
    claims: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    is_partial: bool = msgspec.field(default=False, name="partial")


def encode(content: Content) -> bytes:
    """The bytes of the file."""
    return _joined(content, {uid: _encoded(each) for uid, each in content.claims.items()})


def _encoded(entry: Entry) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(entry))


def _joined(content: Content, entries: Mapping[str, msgspec.Raw]) -> bytes:
    data = msgspec.json.encode(
        _Data(
            boot_id=content.boot_id,
            claims={**content.quarantined, **entries},
            is_partial=content.is_partial,
        )
    )
    return msgspec.json.encode(
        _File(version=VERSION, checksum=_checksum(data), data=msgspec.Raw(data))
    )


def decode(content: bytes) -> Content:
    """Read the file. Raises CorruptError that says what is wrong with it."""
    if not content:
        raise CorruptError("the file is empty")
    try:
        file = msgspec.json.decode(content, type=_File)
        if file.version != VERSION:
            raise CorruptError(f"its version is {file.version!r}, this program knows {VERSION!r}")
        if file.checksum != _checksum(bytes(file.data)):
            raise CorruptError("its checksum does not match its content")
        data = msgspec.json.decode(file.data, type=_Data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptError(f"it is not a checkpoint: {error}") from error
    found = Content(boot_id=data.boot_id, is_partial=data.is_partial)
    for uid, raw in data.claims.items():
        try:
            found.claims[uid] = msgspec.json.decode(raw, type=Entry)
        except (msgspec.DecodeError, UnicodeDecodeError):
            found.quarantined[uid] = raw.copy()
    return found


def _checksum(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Store:
    """The file on disk. Calls block; use a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last: tuple[bytes, Content] | None = None
        self._encoded: dict[str, tuple[Entry, msgspec.Raw]] = {}

    def read(self) -> Content | None:
        """The content, None if there is no file. Raises CorruptError."""
        try:
            raw = self._raw()
        except NotFoundError:
            return None
        except (InvalidError, ForbiddenError) as error:
            raise CorruptError(f"it cannot be read: {error}") from error
        last = self._last
        if last is None or last[0] != raw:
            last = self._last = raw, decode(raw)
        return last[1].copy()

    def _raw(self) -> bytes:
        try:
            is_file = stat.S_ISREG(self.path.stat().st_mode)
        except OSError as error:
            raise files.translated(error, self.path) from error
        if not is_file:  # To open a FIFO would wait for a writer.
            raise CorruptError("it is not a file")
        return files.read(self.path)

    def write(self, content: Content, *, durable: bool) -> None:
        """Replace the file. Not `durable`: a power cut may lose the change, a kill may not."""
        known = self._encoded
        self._encoded = {
            uid: known[uid] if uid in known and known[uid][0] is entry else (entry, _encoded(entry))
            for uid, entry in content.claims.items()
        }
        raw = _joined(content, {uid: each[1] for uid, each in self._encoded.items()})
        files.write_atomic(self.path, raw, mode=0o600, durable=durable)
        self._last = raw, content.copy()

    def set_aside(self) -> Path:
        """Keep an unusable file, or what lies there instead, under another name and return it.

        Of all that was set aside the newest `KEPT` remain.
        """
        prefix = f"{self.path.stem}.corrupt-"
        try:
            names = [each.name.removeprefix(prefix) for each in self.path.parent.glob(f"{prefix}*")]
            before = sorted(int(each) for each in names if each.isdecimal())
            number = before[-1] + 1 if before else 0
            kept = self.path.with_name(f"{prefix}{number}")
            self.path.rename(kept)
        except OSError as error:
            raise files.translated(error, self.path) from error
        for old in before[: 1 - KEPT]:
            _discard(self.path.with_name(f"{prefix}{old}"))
        return kept


def _discard(path: Path) -> None:
    """Remove a file or folder; one that stays is tried again the next time."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
