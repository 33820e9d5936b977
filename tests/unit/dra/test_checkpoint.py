# SPDX-License-Identifier: Apache-2.0
"""The file format of the checkpoint."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpudeck.dra import checkpoint
from gpudeck.dra.allocations import HeldDevice
from gpudeck.dra.checkpoint import Content, Entry, State


def content() -> Content:
    device = HeldDevice(name="gpu-a", pool="n", requests=["r"], share_id="s")
    entry = Entry(
        state=State.COMPLETED, namespace="t", name="c", devices=[device], spec='{"a": "é"}'
    )
    return Content(boot_id="b", claims={"u1": entry})


def file(data: Any, **changes: Any) -> bytes:
    text = json.dumps(data)
    digest = hashlib.sha256(text.encode()).hexdigest()
    head = {"version": "v1", "checksum": f"sha256:{digest}", **changes}
    return f'{json.dumps(head)[:-1]}, "data": {text}}}'.encode()


def test_what_is_written_is_read_again() -> None:
    assert checkpoint.decode(checkpoint.encode(content())) == content()


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "empty"),
        (b"\x00\xff", "not a checkpoint"),
        (b"{}", "not a checkpoint"),
        (file({}, version="v2"), "version is 'v2'"),
        (file({}, checksum="sha256:0"), "checksum"),
        (file({"claims": []}), "not a checkpoint"),
    ],
)
def test_what_is_no_checkpoint_says_why(raw: bytes, why: str) -> None:
    with pytest.raises(checkpoint.CorruptError, match=why):
        checkpoint.decode(raw)


def test_every_truncation_is_noticed() -> None:
    whole = checkpoint.encode(content())
    for length in range(len(whole)):
        with pytest.raises(checkpoint.CorruptError):
            checkpoint.decode(whole[:length])


def test_a_bad_entry_is_set_aside_and_written_back() -> None:
    raw = file({"claims": {"good": {"state": "PrepareStarted"}, "odd": {"state": "Twisted"}}})
    found = checkpoint.decode(raw)
    assert list(found.claims) == ["good"]
    assert list(found.quarantined) == ["odd"]
    again = checkpoint.decode(checkpoint.encode(found))
    assert {uid: bytes(each) for uid, each in again.quarantined.items()} == {
        "odd": b'{"state": "Twisted"}'
    }


def test_unknown_fields_are_passed_over() -> None:
    entry = {"state": "PrepareCompleted", "new": 1, "devices": [{"name": "a", "new": 2}]}
    found = checkpoint.decode(file({"claims": {"u": entry}, "new": 3}))
    assert found.claims["u"].devices == [HeldDevice(name="a")]


def test_what_another_process_wrote_is_read(tmp_path: Path) -> None:
    ours, theirs = (checkpoint.Store(tmp_path / "checkpoint.json") for _ in range(2))
    ours.write(content(), durable=False)
    assert theirs.read() == ours.read() == content()
    theirs.write(Content(boot_id="b"), durable=False)
    assert ours.read() == Content(boot_id="b")


def test_what_a_caller_does_with_the_content_is_not_read_by_the_next(tmp_path: Path) -> None:
    store = checkpoint.Store(tmp_path / "checkpoint.json")
    store.write(content(), durable=False)
    for _ in range(2):
        found = store.read()
        assert found == content()
        found.forget("u1")


def test_an_entry_that_was_replaced_is_written_anew(tmp_path: Path) -> None:
    store = checkpoint.Store(tmp_path / "checkpoint.json")
    store.write(content(), durable=False)
    changed = content()
    changed.claims["u1"] = Entry(state=State.STARTED)
    store.write(changed, durable=False)
    assert checkpoint.decode(store.path.read_bytes()) == changed


def test_forgetting_says_whether_there_was_something() -> None:
    found = content()
    assert found.forget("u1")
    assert not found.forget("u1")


def folder(path: Path) -> None:
    path.mkdir()
    (path / "file").touch()


@pytest.mark.parametrize(
    "make",
    [folder, os.mkfifo, lambda path: path.symlink_to(path)],
    ids=["folder", "fifo", "circle"],
)
def test_what_is_no_file_is_corrupt_and_can_be_set_aside(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    store = checkpoint.Store(tmp_path / "checkpoint.json")
    for _ in range(7):
        make(store.path)
        with pytest.raises(checkpoint.CorruptError):
            store.read()
        store.set_aside()
        assert store.read() is None
    kept = sorted(each.name for each in tmp_path.iterdir())
    assert kept == [f"checkpoint.corrupt-{number}" for number in range(2, 7)]


def test_of_many_unusable_files_the_newest_are_kept(tmp_path: Path) -> None:
    store = checkpoint.Store(tmp_path / "checkpoint.json")
    for number in range(12):
        store.path.write_text(str(number))
        store.set_aside()
    assert sorted(each.read_text() for each in tmp_path.iterdir()) == ["10", "11", "7", "8", "9"]


def test_unusable_files_are_kept(tmp_path: Path) -> None:
    store = checkpoint.Store(tmp_path / "checkpoint.json")
    for number, text in enumerate(("one", "two")):
        store.path.write_text(text)
        kept = store.set_aside()
        assert (kept.name, kept.read_text()) == (f"checkpoint.corrupt-{number}", text)
    assert store.read() is None
