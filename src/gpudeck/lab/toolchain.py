# SPDX-License-Identifier: Apache-2.0
"""Build the programs of a Kubernetes cluster from their Go modules, once.

Each part has a folder below `builds/` with a go.mod and go.sum that pin every
module by hash. Its programs land in the cache under a digest of that folder, the
flags and the compiler's version, by a rename at the end: an interrupted build
leaves nothing half made, and the next one resumes from Go's own build cache.
One module each, because their requirements clash.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from gpudeck.errors import NotFoundError
from gpudeck.lab import places, processes

Report = Callable[[str], None]

BUILDS = Path(__file__).parent / "builds"
_VERSION = "k8s.io/component-base/version"
_PACKAGES = {
    "libseccomp-dev": "/usr/include/seccomp.h",
    "nftables": "/usr/sbin/nft",
    "debootstrap": "/usr/sbin/debootstrap",
    "iproute2": "/sbin/ip",
    "conntrack": "/usr/sbin/conntrack",
    "gcc": "/usr/bin/gcc",
    "make": "/usr/bin/make",
}
"""Debian package of each program or header that the lab needs, and the file that proves it."""


@dataclasses.dataclass(frozen=True)
class Part:
    """One Go module to build: `targets` are its packages, `links` further names of the program."""

    name: str
    folder: str
    targets: tuple[str, ...]
    linker: str = "-s -w"
    cgo: bool = False
    tags: str = ""
    output: str = ""
    links: tuple[str, ...] = ()


def _kubernetes_linker(version: str) -> str:
    """What makes Kubernetes' programs say that they are of `version`."""
    major, minor, _ = version.split(".")
    return (
        f"-s -w -X {_VERSION}.gitVersion=v{version} -X {_VERSION}.gitMajor={major} "
        f"-X {_VERSION}.gitMinor={minor} -X {_VERSION}.gitTreeState=clean"
    )


ETCD = Part("etcd 3.7.3", "etcd", ("go.etcd.io/etcd/server/v3",), output="etcd")
PARTS = (
    Part(
        "Kubernetes 1.37.2",
        "kubernetes",
        (".",),
        linker=_kubernetes_linker("1.37.2"),
        output="kubernetes",
        links=(
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kube-proxy",
            "kubelet",
            "kubectl",
        ),
    ),
    Part("Helm 4.3.2", "kubernetes", ("./helm",), output="helm"),
    ETCD,
    Part(
        "containerd 2.4.2",
        "containerd",
        ("tool",),
        linker="-s -w -X github.com/containerd/containerd/v2/version.Version=v2.4.2",
    ),
    Part(
        "runc 1.5.1",
        "runc",
        ("tool",),
        linker="-s -w -X main.version=1.5.1",
        cgo=True,
        tags="seccomp",
    ),
    Part("CNI plugins 1.10.0", "cni", ("tool",)),
    Part(
        "nvidia-cdi-hook 1.20.2",
        "nvidia",
        ("tool",),
        linker=(
            "-s -w -extldflags=-Wl,-z,lazy "
            "-X github.com/NVIDIA/nvidia-container-toolkit/internal/info.version=1.20.2"
        ),
        cgo=True,
    ),
)
OLDEST = (
    Part(
        "the API server of Kubernetes 1.34.4",
        "kubernetes-1.34",
        ("k8s.io/kubernetes/cmd/kube-apiserver",),
        linker=_kubernetes_linker("1.34.4"),
        output="kube-apiserver",
    ),
    ETCD,
)
"""The oldest Kubernetes that gpudeck runs on, as far as `make test-skew` needs it."""


def ensure(report: Report) -> Path:
    """Return the folder that holds every program, building and installing what is missing.

    Raises TerminalError with the tail of the failed build's output.
    """
    install_packages(report)
    return _ensure(PARTS, "toolchain", report)


def ensure_oldest(report: Report) -> Path:
    """Return the folder that holds the programs of OLDEST, building what is missing.

    Raises TerminalError with the tail of the failed build's output.
    """
    return _ensure(OLDEST, "oldest", report)


def _ensure(parts: Sequence[Part], gathering: str, report: Report) -> Path:
    compiler = _compiler()
    built = []
    for number, part in enumerate(parts, 1):
        step = f"[{number}/{len(parts)}] Building {part.name}"
        with places.exclusive(f"toolchain-{part.folder}"):
            built.append(_build(part, compiler, report, step))
    return _gather(built, gathering)


def install_packages(report: Report) -> None:
    """Install the Debian packages that the lab needs and the machine lacks."""
    missing = sorted(name for name, proof in _PACKAGES.items() if not Path(proof).exists())
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise NotFoundError(
            f"the lab needs the Debian packages {' '.join(missing)}; install them and try again",
            reason="PackagesMissing",
        )
    report(f"Installing the Debian packages {' '.join(missing)}")
    quietly = {"DEBIAN_FRONTEND": "noninteractive"}
    processes.build(["apt-get", "update", "-qq"], env=quietly)
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends"]
    processes.build([*install, *missing], env=quietly)


def _compiler() -> str:
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not Path(go).exists():
        raise NotFoundError("the lab builds Kubernetes and needs Go 1.26 or later on the PATH")
    return go


def _build(part: Part, go: str, report: Report, step: str) -> Path:
    source = BUILDS / part.folder
    version = subprocess.run([go, "version"], check=True, capture_output=True, text=True).stdout
    key = places.digest(
        (path for path in source.rglob("*") if path.is_file()),
        version,
        repr(part),
        relative_to=source,
    )
    target = places.cache() / "programs" / f"{part.folder}-{key}"
    if target.is_dir():
        return target
    report(step)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as scratch:
        output = Path(scratch) / "bin"
        output.mkdir()
        _compile(part, go, source, output)
        for link in part.links:
            (output / link).symlink_to(part.output)
        output.rename(target)
    return target


def _compile(part: Part, go: str, source: Path, output: Path) -> None:
    command = [go, "build", "-trimpath", "-mod=readonly", "-ldflags", part.linker]
    if part.tags:
        command += ["-tags", part.tags]
    command += ["-o", str(output / part.output) if part.output else f"{output}/", *part.targets]
    environment = {
        "CGO_ENABLED": "1" if part.cgo else "0",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "",
        "GOWORK": "off",
        # go-nvml's deprecation warnings would fill a screen.
        "CGO_CFLAGS": "-O2 -Wno-deprecated-declarations",
    }
    processes.build(command, folder=source, env=environment)


def _gather(built: list[Path], gathering: str) -> Path:
    """Make one folder of links to every program; runc and the shim are found on its PATH.

    What is gathered for one purpose is not found by who looks for another's.
    """
    name = places.digest([], *(path.name for path in built), relative_to=Path("/"))
    folder = places.cache() / gathering / name / "bin"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".linking-") as scratch:
        gathered = Path(scratch) / "bin"
        gathered.mkdir()
        for program in sorted(path for part in built for path in part.iterdir()):
            (gathered / program.name).symlink_to(program)
        if not folder.is_dir():
            gathered.rename(folder)
    return folder


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    find = ensure_oldest if sys.argv[1:] == ["oldest"] else ensure
    sys.stdout.write(f"{find(_say)}\n")
