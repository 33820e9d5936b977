# SPDX-License-Identifier: Apache-2.0
"""The lab's images: the product, a workload, and pause; each layer built once.

- base: Debian with Python, made by debootstrap, without documents and caches
- product = base + the locked wheels + the hooks and gpudeck itself
- workload = base + gpu-burn; no file of a card's maker: those come by CDI or not at all
- pause = one static program

Byte code ships inside, checked by nothing, because a read-only root would compile
on every start. A change of gpudeck's source makes only the last, small layer anew.
"""

from __future__ import annotations

import compileall
import dataclasses
import json
import os
import py_compile
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import gpudeck
from gpudeck.errors import UnsupportedError
from gpudeck.lab import oci, places, processes

Report = Callable[[str], None]

REGISTRY = "registry.lab"
# No ca-certificates: the product trusts its cluster's authority alone, and loading 140 others costs
# each process 70 ms and 3 MB.
SUITE, PACKAGES = "bookworm", ("python3", "pci.ids")
PYTHON = (3, 11)
"""Python of the suite above; the wheels are installed with the running Python and must fit it."""
USER = 65532
_RECIPE = "2"
"""Counted up when the way a layer is made changes in a way that its inputs do not show."""
_KEPT_LAYOUTS = 4
_MEMORY_HOOK = "gpudeck-memory-limits"
_UNUSED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/i18n",
    "usr/share/zoneinfo",
    "usr/lib/python3.11/test",
    "usr/lib/python3.11/ensurepip",
    "usr/lib/python3.11/idlelib",
    "var/cache",
    "var/lib/apt/lists",
    "var/log",
)
_LAUNCHER = """#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
import sys

from gpudeck.cli.starting import main

sys.exit(main())
"""


@dataclasses.dataclass(frozen=True)
class Images:
    """A finished set: a layout for the registry, an archive for import, and the references."""

    layout: Path
    archive: Path
    product: str
    workload: str
    pause: str


def ensure(report: Report, *, programs: Path, native: Path) -> Images:
    """Build what is missing from the toolchain in `programs` and the C programs in `native`."""
    with places.exclusive("images"):
        base = _base_layer(report)
        wheels = _layer("wheels", _wheels_key(), _fill_wheels, report)
        own = _layer(
            "gpudeck",
            _own_key(programs, native),
            lambda tree: _fill_own(tree, programs, native),
            report,
        )
        burn = _layer(
            "gpu-burn",
            _native_key(native, "gpu-burn"),
            lambda t: _copy(native, "gpu-burn", t / "usr/bin"),
            report,
        )
        pause = _layer(
            "pause", _native_key(native, "pause"), lambda t: _copy(native, "pause", t), report
        )
        tag = own.digest.removeprefix("sha256:")[:12]
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        images = (
            oci.Image(
                f"{REGISTRY}/gpudeck:{tag}",
                (base, wheels, own),
                {"Entrypoint": ["/usr/bin/gpudeck"], "User": str(USER), "Env": [path]},
            ),
            oci.Image(
                f"{REGISTRY}/gpu-burn:latest",
                (base, burn),
                {"Entrypoint": ["gpu-burn"], "Env": [path]},
            ),
            oci.Image(
                f"{REGISTRY}/pause:3.10",
                (pause,),
                {"Entrypoint": ["/pause"], "User": "65535:65535"},
            ),
        )
        return _assemble(images, report)


def _assemble(images: tuple[oci.Image, ...], report: Report) -> Images:
    key = places.digest(
        [],
        *(layer.digest for image in images for layer in image.layers),
        *(json.dumps(image.settings, sort_keys=True) for image in images),
        _RECIPE,
        relative_to=Path("/"),
    )
    folder = places.cache() / "images" / key
    if not folder.is_dir():
        report("Packing the images")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".packing-") as scratch:
            made = Path(scratch) / "set"
            oci.write_layout(made / "layout", images)
            oci.write_archive(made / "layout", made / "images.tar")
            made.rename(folder)
        _prune(folder.parent)
    os.utime(folder)
    product, workload, pause = (image.reference for image in images)
    return Images(folder / "layout", folder / "images.tar", product, workload, pause)


def _prune(parent: Path) -> None:
    """Remove old sets; a lab that serves one has links of its own to its files."""
    sets = [each for each in parent.iterdir() if not each.name.startswith(".")]
    for old in sorted(sets, key=lambda each: each.stat().st_mtime)[:-_KEPT_LAYOUTS]:
        shutil.rmtree(old)


def _layer(name: str, key: str, fill: Callable[[Path], None], report: Report) -> oci.Layer:
    """Return the cached layer `name-key`, or fill a folder and pack it."""
    target = places.cache() / "layers" / f"{name}-{key}.tar"
    if target.is_file():
        return oci.read_layer(target)
    report(f"Building the layer {name}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as scratch:
        tree = Path(scratch) / "tree"
        tree.mkdir()
        fill(tree)
        oci.write_layer(tree, Path(scratch) / "layer.tar", skip=_is_waste)
        (Path(scratch) / "layer.tar").rename(target)
    return oci.read_layer(target)


def _is_waste(name: str) -> bool:
    return any(name == path or name.startswith(path + "/") for path in _UNUSED)


def _base_layer(report: Report) -> oci.Layer:
    if sys.version_info[:2] != PYTHON:
        raise UnsupportedError(
            f"the image has Python {PYTHON[0]}.{PYTHON[1]}, and its wheels are installed by the "
            f"running Python, which is {sys.version_info[0]}.{sys.version_info[1]}; "
            f"run the lab with Python {PYTHON[0]}.{PYTHON[1]}"
        )
    key = places.digest([], SUITE, *PACKAGES, *_UNUSED, _RECIPE, relative_to=Path("/"))
    return _layer("base", key, _fill_base, report)


def _fill_base(tree: Path) -> None:
    mirror = _mirror()
    include = "--include=" + ",".join(PACKAGES)
    _run(
        [
            "debootstrap",
            "--variant=minbase",
            include,
            SUITE,
            str(tree),
            *([mirror] if mirror else []),
        ]
    )
    for account, line in (
        ("passwd", f"gpudeck:x:{USER}:{USER}::/nonexistent:/usr/sbin/nologin\n"),
        ("group", f"gpudeck:x:{USER}:\n"),
    ):
        with (tree / "etc" / account).open("a") as handle:
            handle.write(line)
    (tree / "etc/apt/sources.list").write_text("")
    (tree / "etc/hostname").unlink(missing_ok=True)
    (tree / "etc/resolv.conf").unlink(missing_ok=True)
    _compile(tree / "usr/lib/python3.11", tree)


def _mirror() -> str:
    """The address that this machine's own apt uses; empty leaves it to debootstrap."""
    listing = ["apt-get", "indextargets", "--format", "$(SITE) $(CODENAME)"]
    targets = _run(listing)
    if not targets.strip():
        _run(["apt-get", "update", "-qq"])
        targets = _run(listing)
    lines = (line.split() for line in targets.splitlines())
    return next((words[0] for words in lines if words[1:] == [SUITE]), "")


def _wheels_key() -> str:
    lock = places.repository() / "requirements" / "product.lock"
    return places.digest([lock], _RECIPE, sys.version, relative_to=lock.parent)


def _fill_wheels(tree: Path) -> None:
    lock = places.repository() / "requirements" / "product.lock"
    target = tree / "opt" / "gpudeck"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"]
    _run(
        [*pip, "--only-binary=:all:", "--require-hashes", "--target", str(target), "-r", str(lock)]
    )
    shutil.rmtree(target / "bin", ignore_errors=True)
    for waste in [
        *target.rglob("*.pyi"),
        *target.rglob("*.pyx"),
        *target.rglob("*.pxd"),
        *target.rglob("*.c"),
    ]:
        waste.unlink()
    for folder in (target / "grpc" / "_cython", target / "uvloop"):
        for library in folder.glob("*.so"):
            _run(["strip", "--strip-unneeded", str(library)])
    _compile(target, tree)


def _own_files() -> list[Path]:
    package = Path(gpudeck.__file__).parent
    return [
        path
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and path.relative_to(package).parts[0] != "lab"
    ]


def _own_key(programs: Path, native: Path) -> str:
    package = Path(gpudeck.__file__).parent
    hook = (programs / "nvidia-cdi-hook").resolve().parent.name
    return places.digest(
        _own_files(),
        hook,
        _native_key(native, _MEMORY_HOOK),
        _LAUNCHER,
        _RECIPE,
        relative_to=package,
    )


def _fill_own(tree: Path, programs: Path, native: Path) -> None:
    package = Path(gpudeck.__file__).parent
    for source in _own_files():
        target = tree / "opt/gpudeck/gpudeck" / source.relative_to(package)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    _compile(tree / "opt/gpudeck/gpudeck", tree)
    _copy(programs, "nvidia-cdi-hook", tree / "usr/bin")
    _copy(native, _MEMORY_HOOK, tree / "usr/bin")
    # Every Python in the container finds gpudeck: the adapter starts children of its own.
    packages = tree / "usr/lib/python3/dist-packages"
    packages.mkdir(parents=True)
    (packages / "gpudeck.pth").write_text("/opt/gpudeck\n")
    launcher = tree / "usr/bin/gpudeck"
    launcher.write_text(_LAUNCHER)
    launcher.chmod(0o755)


def _native_key(native: Path, name: str) -> str:
    return places.digest([native / name], _RECIPE, relative_to=native)


def _copy(folder: Path, name: str, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / name, target / name)
    (target / name).chmod(0o755)


def _compile(folder: Path, root: Path) -> None:
    """Byte code as people run it, and as the chart's node processes do: without docstrings."""
    for level in (0, 2):
        compileall.compile_dir(
            folder,
            quiet=2,
            force=True,
            optimize=level,
            stripdir=str(root),
            prependdir="/",
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )


def _run(command: list[str]) -> str:
    return processes.build(
        command, env={"SOURCE_DATE_EPOCH": "0", "DEBIAN_FRONTEND": "noninteractive"}
    )
