# SPDX-License-Identifier: Apache-2.0
"""Platform: bare metal, virtual machine, or not to be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck.host import platform
from gpudeck.host.root import Root


def host(root: Path, *, flags: str | None, vendor: str = "", product: str = "") -> Root:
    (root / "proc").mkdir()
    text = "processor\t: 0\n" + (f"flags\t\t: {flags}\n" if flags is not None else "")
    (root / "proc/cpuinfo").write_text(text)
    dmi = root / "sys/class/dmi/id"
    dmi.mkdir(parents=True)
    for name, value in (("sys_vendor", vendor), ("product_name", product)):
        if value:
            (dmi / name).write_text(value + "\n")
    return Root(root)


@pytest.mark.parametrize(
    ("flags", "vendor", "product", "expected"),
    [
        ("fpu vmx", "NVIDIA", "DGXH100", True),
        ("fpu hypervisor", "NVIDIA", "DGXH100", False),
        ("fpu vmx", "QEMU", "Standard PC (Q35 + ICH9, 2009)", False),
        ("fpu", "Microsoft Corporation", "Virtual Machine", False),
        ("fpu", "Microsoft Corporation", "Surface", True),
        (None, "Amazon EC2", "g5g.metal", True),
        (None, "Amazon EC2", "g5g.xlarge", False),
        (None, "NVIDIA", "NVIDIA_DGX_Spark", True),
        ("fpu vmx", "", "", True),
        (None, "", "", None),
    ],
)
def test_bare_metal(
    tmp_path: Path, flags: str | None, vendor: str, product: str, expected: bool | None
) -> None:
    assert (
        platform.is_bare_metal(host(tmp_path, flags=flags, vendor=vendor, product=product))
        is expected
    )


def test_a_host_that_shows_nothing_is_not_guessed_about(tmp_path: Path) -> None:
    assert platform.is_bare_metal(Root(tmp_path)) is None
    assert platform.kernel_release(Root(tmp_path)) is None
    assert platform.boot_id(Root(tmp_path)) is None


def test_kernel_and_boot_are_read_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").write_text("6.8.0-60-generic\n")
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("0b5c\n")
    assert platform.kernel_release(Root(tmp_path)) == "6.8.0-60-generic"
    assert platform.boot_id(Root(tmp_path)) == "0b5c"
