# SPDX-License-Identifier: Apache-2.0
"""A node's root: laid from a machine's layout, and the script that enters it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpudeck.lab import rootfs


def machine(path: Path) -> Path:
    """A machine whose /bin is a link and whose /lib is a folder."""
    for folder in ("usr/bin", "lib", "etc"):
        (path / folder).mkdir(parents=True)
    (path / "bin").symlink_to("usr/bin")
    (path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (path / "etc/shadow").write_text("secret\n")
    return path


def test_a_root_repeats_the_machines_layout_without_its_secrets(tmp_path: Path) -> None:
    source = machine(tmp_path / "machine")
    root = tmp_path / "root"
    mounted = rootfs.lay(root, "node-0", "ab12", programs={}, machine_root=source)
    assert mounted == ["usr", "lib"]
    assert str((root / "bin").readlink()) == "usr/bin"
    assert (root / "etc/passwd").read_text() == "root:x:0:0::/root:/bin/sh\n"
    assert not (root / "etc/shadow").exists()
    assert (root / "etc/resolv.conf").read_text() == ""
    assert (root / "tmp").stat().st_mode & 0o7777 == 0o1777


def test_laying_a_root_again_keeps_what_the_node_wrote(tmp_path: Path) -> None:
    source = machine(tmp_path / "machine")
    root = tmp_path / "root"
    for _ in range(2):
        rootfs.lay(root, "node-0", "ab12", programs={}, machine_root=source)
        (root / "var/lib/kubelet").mkdir(exist_ok=True)
    assert (root / "etc/hostname").read_text() == "node-0\n"


def test_programs_behind_links_are_found_at_their_files(tmp_path: Path) -> None:
    part = tmp_path / "kubernetes-1a2b"
    part.mkdir()
    (part / "kubernetes").write_text("")
    (part / "kubelet").symlink_to("kubernetes")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "kubelet").symlink_to(part / "kubelet")
    programs = rootfs.programs(folder)
    assert programs == {"kubelet": part / "kubernetes"}
    rootfs.lay(
        tmp_path / "root", "n", "ab12", programs=programs, machine_root=machine(tmp_path / "m")
    )
    link = tmp_path / "root/opt/lab/bin/kubelet"
    assert str(link.readlink()) == "/opt/lab/parts/kubernetes-1a2b/kubernetes"


def test_the_script_is_a_shell_script_that_survives_odd_paths(tmp_path: Path) -> None:
    sources = rootfs.Sources(
        system=["usr"],
        programs={"runc": tmp_path / "a b" / "runc"},
        boot_id=tmp_path / "it's",
        simulation=tmp_path / "simulation",
    )
    script = rootfs.script(tmp_path / "the $root", "node-0", sources)
    checked = subprocess.run(["sh", "-n"], input=script, text=True, check=False)
    assert checked.returncode == 0
    assert script.index("pivot_root") < script.index("echo booted")
    assert "'" + str(tmp_path / "the $root") + "'" in script
