# SPDX-License-Identifier: Apache-2.0
"""Name programs that are copied to the node, so that each content has a file of its own.

`cdi.hooks` copies them, and the makers say in a container's edits what the runtime is
to run: both are of one image, and so come to the same name.
"""

from __future__ import annotations

import hashlib


def installed_name(name: str, content: bytes) -> str:
    """The file name on the node: the program's own with a checksum of what is in it."""
    return f"{name}-{hashlib.sha256(content).hexdigest()[:8]}"
