# SPDX-License-Identifier: Apache-2.0
"""Where the lab keeps what it makes: the cache, and the clone it builds from.

The cache holds only what can be made again and is addressed by content, so it
may be deleted at any time. `GPUDECK_CACHE_DIR` moves it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import gpudeck
from gpudeck.errors import NotFoundError


def cache() -> Path:
    """`$GPUDECK_CACHE_DIR`, else `gpudeck` below the XDG cache folder."""
    given = os.environ.get("GPUDECK_CACHE_DIR")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpudeck"


def repository() -> Path:
    """The clone that this package runs from; the lab builds images and C code from it."""
    root = Path(gpudeck.__file__).resolve().parents[2]
    if not (root / "native").is_dir():
        raise NotFoundError(
            f"the lab builds from a clone of gpudeck, and {root} has no folder native; "
            "run `make setup` in a clone and use its .venv/bin/gpudeck",
            reason="CloneMissing",
        )
    return root


def digest(files: Iterable[Path], *words: str, relative_to: Path) -> str:
    """Twelve hex digits over the names, modes and contents of files and over words."""
    total = hashlib.sha256("\0".join(words).encode())
    for path in sorted(files):
        executable = os.access(path, os.X_OK)
        total.update(f"\0{path.relative_to(relative_to)}\0{executable}\0".encode())
        total.update(path.read_bytes())
    return total.hexdigest()[:12]


@contextlib.contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Hold the cache's lock `name`; waits for another process that builds the same thing."""
    path = cache() / "locks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
