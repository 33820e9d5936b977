# SPDX-License-Identifier: Apache-2.0
"""The stand-in libraries are libraries: a loader takes them and sees their names."""

import ctypes
import platform
import struct
from pathlib import Path

import pytest

from gpudeck.lab import elf


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the loader takes its own kind only")
def test_a_stand_in_library_can_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "libnvidia-example.so.1"
    path.write_bytes(elf.shared_library("libnvidia-example.so.1", "x86_64"))
    path.chmod(0o755)
    assert ctypes.CDLL(str(path))._name == str(path)


def test_the_soname_is_the_first_dynamic_entry() -> None:
    library = elf.shared_library("libnvidia-example.so.7", "aarch64")
    (machine,) = struct.unpack_from("<H", library, 18)
    (dynamic,) = struct.unpack_from("<Q", library, 64 + 56 + 8)
    entries = dict(struct.iter_unpack("<QQ", library[dynamic:]))
    name = library[entries[5] + entries[14] :].split(b"\0", 1)[0]
    assert (machine, name) == (183, b"libnvidia-example.so.7")
