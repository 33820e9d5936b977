# SPDX-License-Identifier: Apache-2.0
"""The file format of the Container Device Interface, as far as gpudeck writes it.

After the CDI specification 0.3 to 1.0 (containerd 1.7 and later read up to 0.8, 2.x up
to 1.0). Fields that are not set are left out; a runtime refuses unknown ones.
"""

from __future__ import annotations

import msgspec

from gpudeck.api.meta import Wire


class DeviceNode(Wire):
    """A device node; `host_path` where it differs from `path`, numbers where they are known."""

    path: str
    host_path: str | None = None
    type: str | None = None
    major: int | None = None
    minor: int | None = None
    permissions: str | None = None


class Mount(Wire):
    host_path: str
    container_path: str
    options: list[str] | None = None


class Hook(Wire):
    """An OCI hook; `args[0]` is the program's name."""

    hook_name: str
    path: str
    args: list[str] | None = None
    env: list[str] | None = None


class ContainerEdits(Wire):
    env: list[str] | None = None
    device_nodes: list[DeviceNode] | None = None
    mounts: list[Mount] | None = None
    hooks: list[Hook] | None = None
    additional_gids: list[int] | None = msgspec.field(default=None, name="additionalGids")


class Device(Wire):
    name: str
    container_edits: ContainerEdits


class Spec(Wire):
    """One file: `devices` of one `kind`; the file's own edits go to users of any of them."""

    cdi_version: str
    kind: str
    devices: list[Device]
    container_edits: ContainerEdits | None = None
    annotations: dict[str, str] | None = None
