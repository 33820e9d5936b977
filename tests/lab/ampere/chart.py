# SPDX-License-Identifier: Apache-2.0
"""The chart as the manifests of examples/ want it, and what a node offers."""

from __future__ import annotations

from tests.support.lab import ROOT, Lab

NODE, NAMESPACE = "node-0", "kube-system"
SLICING = ROOT / "examples" / "12-time-slicing"
PARTITIONS = ROOT / "examples" / "11-mig-config"
WHOLE, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


def install(lab: Lab, *options: str) -> None:
    words = (
        "--set=dra.enabled=false",
        "--set=migManager.reboot.enabled=true",
        "--values",
        str(SLICING / "values.yaml"),
    )
    lab.lab("install", "--namespace", NAMESPACE, *words, *options)


def allocatable(lab: Lab, node: str = NODE) -> dict[str, int]:
    """What a node offers of resources of NVIDIA's domain."""
    now = lab.get("node", node)
    assert now is not None
    found = now["status"]["allocatable"]
    return {name: int(count) for name, count in found.items() if name.startswith("nvidia.com/")}


def offers(lab: Lab, *, whole: int, shared: int) -> None:
    wanted = {WHOLE: whole, SHARED: shared}
    lab.eventually(
        f"{NODE} offers {wanted}",
        lambda: {name: allocatable(lab).get(name, 0) for name in wanted} == wanted,
    )
