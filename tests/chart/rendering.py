# SPDX-License-Identifier: Apache-2.0
"""Runs Helm over the chart. As a program it writes the golden files (`make golden`).

Helm is found as HELM, in GPUDECK_TOOLCHAIN_BIN, in the lab's toolchain or on the
path. Golden files are read by the other tests of this folder, which need no Helm.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Any

import yaml

ROOT = pathlib.Path(__file__).parents[2]
CHART = ROOT / "charts" / "gpudeck"
GOLDEN = ROOT / "tests" / "golden" / "chart"
ALWAYS = ("--namespace", "gpudeck-system", "--kube-version", "1.37.2")
VARIANTS = {
    "default": (),
    "dra": ("--set", "dra.enabled=true"),
    "full": ("--values", str(GOLDEN / "full.values.yaml")),
}


def helm() -> str | None:
    """Return the path of Helm, None where there is none."""
    named = os.environ.get("HELM") or os.environ.get("GPUDECK_TOOLCHAIN_BIN", "") + "/helm"
    if os.access(named, os.X_OK):
        return named
    cache = os.environ.get("GPUDECK_CACHE_DIR") or (
        os.environ.get("XDG_CACHE_HOME", str(pathlib.Path.home() / ".cache")) + "/gpudeck"
    )
    built = sorted(pathlib.Path(cache).glob("toolchain/*/bin/helm"))
    return str(built[-1]) if built else shutil.which("helm")


def render(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return what `helm template` says; folders of its own keep the user's settings out."""
    program = helm()
    assert program is not None, "there is no Helm"
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(
            [program, "template", "gpudeck", str(CHART), *ALWAYS, *arguments],
            env={
                "PATH": os.environ["PATH"],
                "HELM_CACHE_HOME": folder,
                "HELM_CONFIG_HOME": folder,
                "HELM_DATA_HOME": folder,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def golden(variant: str) -> list[dict[str, Any]]:
    """Return the objects of a golden file."""
    text = (GOLDEN / f"{variant}.yaml").read_text(encoding="utf-8")
    return [each for each in yaml.safe_load_all(text) if each]


def write() -> None:
    """Write every golden file anew."""
    for variant, arguments in VARIANTS.items():
        rendered = render(*arguments)
        rendered.check_returncode()
        (GOLDEN / f"{variant}.yaml").write_text(rendered.stdout, encoding="utf-8")


if __name__ == "__main__":
    write()
