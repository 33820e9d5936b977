# SPDX-License-Identifier: Apache-2.0
"""Write the smallest shared library that a loader, ldconfig and readelf accept.

A driver has some thirty libraries; programs that make a container see them look only at
names and SONAMEs. `tree_driver` fills the simulated driver root with these, so that a
library which is mounted wrongly is missed and one which is mounted rightly is found.
They export nothing.
"""

from __future__ import annotations

import struct

MACHINES = {"x86_64": 62, "aarch64": 183}
_PAGE = 0x1000
_HEADER, _PROGRAM = 64, 56


def shared_library(soname: str, architecture: str) -> bytes:
    """Return a 64-bit little-endian shared object named `soname` without any symbol."""
    names = b"\0" + soname.encode() + b"\0"
    start = _HEADER + 2 * _PROGRAM
    hash_at = start
    hash_table = struct.pack("<IIII", 1, 1, 0, 0)
    symbols_at = hash_at + len(hash_table)
    symbols = bytes(24)
    names_at = symbols_at + len(symbols)
    dynamic_at = (names_at + len(names) + 15) // 16 * 16
    dynamic = b"".join(
        struct.pack("<QQ", tag, value)
        for tag, value in (
            (14, 1),  # DT_SONAME
            (4, hash_at),  # DT_HASH
            (5, names_at),  # DT_STRTAB
            (10, len(names)),  # DT_STRSZ
            (6, symbols_at),  # DT_SYMTAB
            (11, 24),  # DT_SYMENT
            (0, 0),
        )
    )
    size = dynamic_at + len(dynamic)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01",
        3,  # ET_DYN
        MACHINES[architecture],
        1,
        0,
        _HEADER,
        0,
        0,
        _HEADER,
        _PROGRAM,
        2,
        0,
        0,
        0,
    )
    # One readable and writable segment: a loader relocates the dynamic table in place.
    load = struct.pack("<IIQQQQQQ", 1, 6, 0, 0, 0, size, size, _PAGE)
    table = struct.pack(
        "<IIQQQQQQ",
        2,
        6,
        dynamic_at,
        dynamic_at,
        dynamic_at,
        len(dynamic),
        len(dynamic),
        8,
    )
    body = header + load + table + hash_table + symbols + names
    return body.ljust(dynamic_at, b"\0") + dynamic
