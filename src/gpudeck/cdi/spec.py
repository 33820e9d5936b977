# SPDX-License-Identifier: Apache-2.0
"""The file format of the Container Device Interface, as far as gpudeck writes it.

After the CDI specification 0.3 to 1.0 (containerd 1.7 and later read up to 0.8, 2.x up
to 1.0). Fields that are not set are left out; a runtime refuses unknown ones. Makers
say in these words what a container needs.
"""

from __future__ import annotations

import msgspec


class Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False, kw_only=True):
    """The root of the format's structs: camelCase outside, what is empty is left out."""


class DeviceNode(Part, frozen=True):
    """A device node; `host_path` where it differs from `path`, numbers where they are known."""

    path: str
    host_path: str | None = None
    type: str | None = None
    major: int | None = None
    minor: int | None = None
    permissions: str | None = None


class Mount(Part, frozen=True):
    host_path: str
    container_path: str
    options: tuple[str, ...] = ()


class Hook(Part, frozen=True):
    """An OCI hook; `args[0]` is the program's name."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


class ContainerEdits(Part, frozen=True):
    """What a container needs; host paths as the container runtime sees them."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[int, ...] = ()


NOTHING = ContainerEdits()
"""Runtimes refuse a whole file for one device that is this."""


class Device(Part, frozen=True):
    name: str
    container_edits: ContainerEdits


class Spec(Part, frozen=True):
    """One file: `devices` of one `kind`; the file's own edits go to users of any of them."""

    cdi_version: str
    kind: str
    devices: tuple[Device, ...]
    container_edits: ContainerEdits | None = None
