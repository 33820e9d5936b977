# SPDX-License-Identifier: Apache-2.0
"""Which files of the node belong to the driver and are needed in a container.

The driver's libraries are those that end in its version; a few files of its packages
have versions of their own and are listed by name. What is not installed is left out:
only libcuda must be there. Links that lead to a mounted library are told, too, for a
program is linked against `libcuda.so.1` and not against the file's own name. Reads
folders below the host root, writes nothing.
"""

from __future__ import annotations

import fnmatch

import msgspec

from gpudeck import errors
from gpudeck.host import root as host
from gpudeck.vendors.nvidia import paths

_OTHER_LIBRARIES = (
    "libnvidia-api.so.1",
    "libnvidia-egl-gbm.so.1.*",
    "libnvidia-egl-wayland.so.1.*",
    "libnvidia-egl-wayland2.so.1.*",
    "libnvidia-egl-xcb.so.1.*",
    "libnvidia-egl-xlib.so.1.*",
    "libnvidia-nvvm70.so.*",
)
_PROGRAMS = (
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-smi",
)
_CONFIGURATION = (
    "/etc/OpenCL/vendors/nvidia.icd",
    "/etc/vulkan/icd.d/nvidia_icd.json",
    "/etc/vulkan/implicit_layer.d/nvidia_layers.json",
    "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "/usr/share/nvidia/nvoptix.bin",
    "/usr/share/vulkan/icd.d/nvidia_icd.json",
    "/usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
)
_SOCKETS = ("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket")


class DriverFiles(msgspec.Struct, frozen=True):
    """Files by the path that a container sees, which is the node's."""

    folder: str
    """Where the libraries are."""
    libraries: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    """(path of the link, its target as written)."""
    programs: tuple[str, ...]
    others: tuple[str, ...]
    """Firmware and configuration."""
    sockets: tuple[str, ...]


def find(root: host.Root, version: str) -> DriverFiles:
    """List the files of the driver `version`. Raises UnavailableError where there is no libcuda."""
    folder = _library_folder(root, version)
    names = root.list(folder)
    libraries = tuple(name for name in names if _is_library(name, version))
    vdpau = f"{folder}/vdpau"
    in_vdpau = tuple(
        f"{vdpau}/{name}" for name in root.list(vdpau) if name.endswith(f".so.{version}")
    )
    return DriverFiles(
        folder=folder,
        libraries=(*(f"{folder}/{name}" for name in libraries), *in_vdpau),
        links=(*_links(root, folder, names, libraries), *_other_links(folder, version, libraries)),
        programs=tuple(_programs(root)),
        others=(*_firmware(root, version), *(path for path in _CONFIGURATION if root.exists(path))),
        sockets=tuple(path for path in _SOCKETS if root.exists(path)),
    )


def stamp(root: host.Root) -> tuple[object, ...]:
    """A value that changes when files of the driver come or go; cheap to get."""
    watched = (*paths.LIBRARY_FOLDERS, *paths.PROGRAM_FOLDERS, "/usr/share/glvnd/egl_vendor.d")
    sockets = tuple(root.exists(path) for path in _SOCKETS)
    return (*(root.stamp(path) for path in watched), sockets)


def _library_folder(root: host.Root, version: str) -> str:
    for folder in paths.LIBRARY_FOLDERS:
        if root.exists(f"{folder}/libcuda.so.{version}"):
            return folder
    looked = ", ".join(paths.LIBRARY_FOLDERS)
    raise errors.UnavailableError(
        f"libcuda.so.{version} of the loaded driver is not on the node in {looked}.",
        reason="DriverFilesMissing",
    )


def _is_library(name: str, version: str) -> bool:
    if name.startswith("lib") and name.endswith(f".so.{version}"):
        return True
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _OTHER_LIBRARIES)


def _links(
    root: host.Root, folder: str, names: list[str], libraries: tuple[str, ...]
) -> list[tuple[str, str]]:
    """Links in the folder that end, by one or more steps, at a library of the list."""
    stems = {name.partition(".so")[0] for name in libraries}
    ends = {root.resolve(f"{folder}/{name}") for name in libraries}
    found = []
    for name in names:
        path = f"{folder}/{name}"
        if name in libraries or name.partition(".so")[0] not in stems:
            continue
        target = root.link(path)
        if target is not None and root.resolve(path) in ends:
            # An absolute target (Debian's alternatives) does not exist in a container.
            end = root.resolve(path).rpartition("/")[2]
            found.append((path, end if "/" in target else target))
    return found


def _other_links(folder: str, version: str, libraries: tuple[str, ...]) -> list[tuple[str, str]]:
    """Links that programs look for under names of their own, as NVIDIA's toolkit makes them."""
    found = []
    if f"libGLX_nvidia.so.{version}" in libraries:
        found.append((f"{folder}/libGLX_indirect.so.0", f"libGLX_nvidia.so.{version}"))
    if f"libnvidia-allocator.so.{version}" in libraries:
        found.append((f"{folder}/gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1"))
    return found


def _programs(root: host.Root) -> list[str]:
    found = []
    for program in _PROGRAMS:
        for folder in paths.PROGRAM_FOLDERS:
            if root.exists(f"{folder}/{program}"):
                found.append(f"{folder}/{program}")
                break
    return found


def _firmware(root: host.Root, version: str) -> list[str]:
    folder = f"/lib/firmware/nvidia/{version}"
    names = root.list(folder)
    return [f"{folder}/{name}" for name in names if fnmatch.fnmatchcase(name, "gsp*.bin")]
