# SPDX-License-Identifier: Apache-2.0
"""Where a DRA plugin puts its two sockets so that the kubelet finds them.

Pure. With the UID of its pod a plugin gets names of its own, so the old and the new
pod of a rolling update serve side by side (kubelet 1.33 and later keep several
endpoints of one driver). The names are those of Kubernetes' own kubeletplugin
library 0.37; a path of AF_UNIX has 107 bytes, so long names fall back to hashes.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from gpudeck.errors import InvalidError

MAX_SOCKET_PATH_BYTES = 107


def plugin_socket(data_dir: Path, pod_uid: str = "") -> Path:
    """The socket that serves NodePrepareResources, in the driver's own folder."""
    return _checked(data_dir / (f"dra-{pod_uid}.sock" if pod_uid else "dra.sock"))


def registration_socket(registry_dir: Path, driver: str, pod_uid: str = "") -> Path:
    """The socket whose appearance makes the kubelet ask who serves `driver`.

    Raises InvalidError when even the shortest name does not fit into an AF_UNIX path.
    """
    if not pod_uid:
        return _checked(registry_dir / f"{driver}-reg.sock")
    both = f"{driver}\x00{pod_uid}"
    names = (
        f"{driver}-{pod_uid}-reg.sock",
        f"{driver}-{_digest(pod_uid, 8)}-reg.sock",
        f"dra-{_digest(both, 16)}-reg.sock",
    )
    fitting = [name for name in names if _fits(registry_dir / name)]
    return _checked(registry_dir / (fitting or names[-1:])[0])


def _digest(text: str, length: int) -> str:
    digest = hashlib.sha256(text.encode()).digest()[:length]
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _fits(path: Path) -> bool:
    return len(bytes(path)) <= MAX_SOCKET_PATH_BYTES


def _checked(path: Path) -> Path:
    if _fits(path):
        return path
    raise InvalidError(
        f"{path}: {len(bytes(path))} bytes are too long for a socket",
        reason="SocketPathTooLong",
        field=str(path),
        allowed=f"at most {MAX_SOCKET_PATH_BYTES} bytes",
    )
