# SPDX-License-Identifier: Apache-2.0
"""Write every generated file anew, or with `--check` say which ones are out of date.

Generated are the protocol stubs (from `protos/`), the CRDs (from the wire structs), the
chart's MIG configs (from `mig.defaults`), pages of docs/reference (`reference`) and what
some machines offer (`offers`). They are committed so that neither an installation nor a
reader needs the generators.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.golden import offers, reference

from gpudeck.mig import configs, defaults

ROOT = Path(__file__).parents[2]
LICENCE = "# SPDX-License-Identifier: Apache-2.0\n"
STUBS = (
    ("gpudeck/kubelet/wire=protos/kubelet", "gpudeck/kubelet/wire", "protos/kubelet", False),
    ("gpudeck/adapter/cri=protos/cri", "gpudeck/adapter/cri", "protos/cri", False),
    (
        "gpudeck/adapter/v1=protos/gpudeck/adapter/v1",
        "gpudeck/adapter/v1",
        "protos/gpudeck/adapter/v1",
        True,
    ),
)
"""Import mapping, package folder, folder of the .proto files, whether gRPC classes are made."""


def write(target: Path) -> list[Path]:
    """Write all generated files below `target`, laid out as in the repository; return them."""
    for mapping, package, protos, services in STUBS:
        (target / "src" / package).mkdir(parents=True, exist_ok=True)
        names = sorted(path.name for path in (ROOT / protos).glob("*.proto"))
        out = str(target / "src")
        command = [sys.executable, "-m", "grpc_tools.protoc", "-I", mapping]
        command += [f"--python_out={out}", f"--pyi_out={out}"]
        command += [f"--grpc_python_out={out}"] if services else []
        subprocess.run([*command, *(f"{package}/{name}" for name in names)], check=True, cwd=ROOT)
        for stub in (target / "src" / package).glob("*_pb2*.py*"):
            stub.write_text(LICENCE + stub.read_text())
    crds = target / "charts" / "gpudeck" / "crds"
    crds.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, "-m", "gpudeck.api.crds", str(crds)],
        check=True,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    folder = target / "charts" / "gpudeck" / "files"
    folder.mkdir(parents=True, exist_ok=True)
    shipped = LICENCE + configs.write(defaults.all_models())
    (folder / "default-mig-parted-config.yaml").write_text(shipped)
    folder = target / "docs" / "reference"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in reference.pages(ROOT / "charts" / "gpudeck").items():
        (folder / name).write_text(text, encoding="utf-8")
    folder = target / "tests" / "golden" / "slices"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in offers.pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    return sorted(path for path in target.rglob("*") if path.is_file())


def main() -> int:
    """Regenerate in place, or compare with `--check`."""
    if "--check" not in sys.argv[1:]:
        write(ROOT)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch)
        stale = [
            str(path.relative_to(target))
            for path in write(target)
            if not (ROOT / path.relative_to(target)).is_file()
            or (ROOT / path.relative_to(target)).read_bytes() != path.read_bytes()
        ]
    for name in stale:
        sys.stderr.write(f"{name} is out of date: run `make golden`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
