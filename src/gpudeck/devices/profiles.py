# SPDX-License-Identifier: Apache-2.0
"""Names of kinds of partitions, as the driver has them and as Kubernetes can have them. Pure.

The driver's name is used wherever a profile shows up (case-29); no name is made of figures.
"""

from __future__ import annotations

import re

_FORBIDDEN = re.compile(r"[^A-Za-z0-9.-]+")
_LONGEST = 32
"""Characters. The longest label, `mig-<profile>.sharing-strategy`, takes 63."""


def spelled(name: str) -> str:
    """The name in labels, resources, objects and configs, which take no plus: `1g.10gb.me`.

    Whatever a driver may call a partition some day, it is a part of a valid name.
    """
    plain = _FORBIDDEN.sub("-", name.replace("+", "."))
    return plain[:_LONGEST].strip(".-")


def is_split(name: str) -> bool:
    """`1c.3g.40gb`: a compute instance that is not all of its GPU instance, offered by nothing."""
    head = name.partition(".")[0]
    return head.endswith("c") and head[:-1].isdigit()
