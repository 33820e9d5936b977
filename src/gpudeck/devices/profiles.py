# SPDX-License-Identifier: Apache-2.0
"""Names of kinds of partitions, as the driver has them and as Kubernetes can have them. Pure.

The driver's name is used wherever a profile shows up (case-29); no name is made of figures.
"""

from __future__ import annotations


def spelled(name: str) -> str:
    """The name in labels, resources, objects and configs, which take no plus: `1g.10gb.me`."""
    return name.replace("+", ".")


def is_split(name: str) -> bool:
    """`1c.3g.40gb`: a compute instance that is not all of its GPU instance, offered by nothing."""
    head = name.partition(".")[0]
    return head.endswith("c") and head[:-1].isdigit()
