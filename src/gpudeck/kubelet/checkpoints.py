# SPDX-License-Identifier: Apache-2.0
"""What the kubelet keeps on disk of the devices that it gave to containers.

Its pod-resources API (1.34 to 1.37) leaves out ordinary init containers, also while they run;
the file has them. But it has pods that have ended too, until it is written anew: at each
list that a device plugin sends, when whoever was asked by that API has made the kubelet forget
them. Read by the device plugin where the API alone would let it hand out what is in use, and by
`listing`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path

import msgspec

from gpudeck import errors, logs
from gpudeck.host import files, root

log = logs.get(__name__)

FILE = "kubelet_internal_checkpoint"
"""In the folder of the plugins' sockets."""


class _Entry(msgspec.Struct, rename="pascal"):
    pod_uid: str = msgspec.field(default="", name="PodUID")
    resource_name: str = ""
    device_ids: dict[str, list[str]] | None = msgspec.field(default=None, name="DeviceIDs")
    """By NUMA node."""


class _Given(msgspec.Struct, rename="pascal"):
    pod_device_entries: list[_Entry] | None = None


class _File(msgspec.Struct, rename="pascal"):
    data: _Given = msgspec.field(default_factory=_Given)


def stamp(folder: Path) -> tuple[int, int, int] | None:
    """A value that differs when the kubelet has written its file anew."""
    return root.Root().stamp((folder / FILE).as_posix())


def untold(
    folder: Path, told: Mapping[str, Container[str]], *, concerns: Callable[[str], bool]
) -> dict[str, frozenset[str]]:
    """Ids by resource that the file has and `told` has not, where they concern the caller.

    Nothing where there is no such file, or it is of another form.
    """
    devices: dict[str, set[str]] = {}
    for each in _entries(folder):
        for one in _ids(each):
            if concerns(one) and one not in told.get(each.resource_name, ()):
                devices.setdefault(each.resource_name, set()).add(one)
    return {name: frozenset(ids) for name, ids in devices.items()}


def by_pod(folder: Path) -> dict[str, frozenset[str]]:
    """Ids by the UID of the pod that has them or had them; nothing where there is no such file."""
    devices: dict[str, set[str]] = {}
    for each in _entries(folder):
        devices.setdefault(each.pod_uid, set()).update(_ids(each))
    return {uid: frozenset(ids) for uid, ids in devices.items()}


def _entries(folder: Path) -> list[_Entry]:
    try:
        found = msgspec.json.decode(files.read(folder / FILE), type=_File)
    except errors.NotFoundError:
        return []
    except (errors.GpudeckError, msgspec.DecodeError) as error:
        log.info("The kubelet's file of devices cannot be read", error=error)
        return []
    return found.data.pod_device_entries or []


def _ids(entry: _Entry) -> Iterator[str]:
    return itertools.chain.from_iterable((entry.device_ids or {}).values())
