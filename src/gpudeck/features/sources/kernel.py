# SPDX-License-Identifier: Apache-2.0
"""The features kernel.version, config, loadedmodule, enabledmodule, selinux and kvm."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable

from gpudeck import errors
from gpudeck.features.known import Known
from gpudeck.features.sources.attributes import ABSENT, Attributes
from gpudeck.host import platform
from gpudeck.host.root import Root

_CONFIGS = (
    "/proc/config.gz",
    "/boot/config-{0}",
    "/usr/lib/modules/{0}/config",
    "/lib/modules/{0}/config",
    "/lib/modules/{0}/build/.config",
    "/usr/src/linux-{0}/.config",
    "/usr/src/linux/.config",
    "/usr/lib/ostree-boot/config-{0}",
    "/usr/lib/kernel/config-{0}",
)
_CONFIG_BYTES = 4 * 1024 * 1024
_VERSION = re.compile(r"(?P<major>\d+)(?:\.(?P<minor>\d+))?(?:\.(?P<revision>\d+))?(?:[-+_.].*)?")
_OPTION = re.compile(r"^CONFIG_(\w+)=(.*)$", re.MULTILINE)


def read(root: Root, known: Known, *, config: str = "") -> list[str]:
    """Add what is known of the running kernel. NotFoundError where /proc is not there.

    `config` is the only place where its configuration is looked for, if it is given.
    """
    release = platform.kernel_release(root)
    if release is None:
        raise errors.NotFoundError("/proc/sys/kernel/osrelease is not there")
    attributes = Attributes(root)
    known.attributes["kernel.version"] = version(release)
    loaded = _loaded(root)
    known.flags["kernel.loadedmodule"] = loaded
    known.flags["kernel.enabledmodule"] = loaded | _built_in(root, release)
    known.attributes["kernel.selinux"] = {
        "enabled": _word(attributes.get("/sys/fs/selinux/enforce") == "1")
    }
    known.attributes["kernel.kvm"] = {
        "enabled": _word(root.exists("/sys/devices/virtual/misc/kvm"))
    }
    options = _options(root, release, (config,) if config else _CONFIGS)
    if options is None:
        return [*attributes.left_out, "there is no readable configuration of the kernel"]
    known.attributes["kernel.config"] = options
    return attributes.left_out


def version(release: str) -> dict[str, str]:
    """The release and its parts: `6.8.0-60-generic` has major 6, minor 8, revision 0."""
    full = re.sub(r"[^-A-Za-z0-9_.]", "_", release).strip("-_.")
    found = _VERSION.fullmatch(full)
    parts = found.groupdict() if found is not None else {}
    return {"full": full, **{name: value for name, value in parts.items() if value is not None}}


def options(text: str) -> dict[str, str]:
    """The options of a kernel's configuration that are set: `y`, `m`, a number or a text."""
    return {name: value.strip().strip('"') for name, value in _OPTION.findall(text)}


def _loaded(root: Root) -> set[str]:
    """The modules; a kernel that was built without any has no such file."""
    try:
        text = root.read_text("/proc/modules")
    except errors.NotFoundError:
        return set()
    return {line.split()[0] for line in text.splitlines() if line.strip()}


def _options(root: Root, release: str, paths: Iterable[str]) -> dict[str, str] | None:
    for path in paths:
        try:
            content = root.read_bytes(path.replace("{0}", release), limit=_CONFIG_BYTES)
            if content.startswith(b"\x1f\x8b"):
                content = gzip.decompress(content)
        except (*ABSENT, OSError, EOFError, zlib.error):
            continue
        found = options(content.decode("utf-8", "replace"))
        if found:
            return found
    return None


def _built_in(root: Root, release: str) -> set[str]:
    for folder in (f"/lib/modules/{release}", f"/usr/lib/modules/{release}"):
        try:
            text = root.read_text(f"{folder}/modules.builtin")
        except ABSENT:
            continue
        files = (line.rpartition("/")[2].partition(".")[0] for line in text.splitlines())
        names = {name for name in files if name}
        # Rules spell them as their files are named (vfio-pci) or as a loaded module is (vfio_pci).
        return names | {name.replace("-", "_") for name in names}
    return set()


def _word(is_so: bool) -> str:
    return "true" if is_so else "false"
