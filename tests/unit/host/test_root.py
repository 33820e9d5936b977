# SPDX-License-Identifier: Apache-2.0
"""Root: links stay inside, absent differs from unreadable, writes are whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gpudeck import errors
from gpudeck.host.root import Root


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "outside").write_text("outside")
    root = tmp_path / "root"
    (root / "sys/devices/pci0000:00").mkdir(parents=True)
    (root / "sys/devices/pci0000:00/vendor").write_text("0x10de\n")
    (root / "sys/bus").mkdir()
    (root / "etc").mkdir()
    return root


def test_a_relative_link_is_followed(tree: Path) -> None:
    (tree / "sys/bus/card").symlink_to("../devices/pci0000:00")
    assert Root(tree).attribute("/sys/bus/card/vendor") == "0x10de"
    assert Root(tree).resolve("/sys/bus/card/vendor") == "/sys/devices/pci0000:00/vendor"


def test_an_absolute_link_is_followed_below_the_root(tree: Path) -> None:
    (tree / "sys/bus/card").symlink_to("/sys/devices/pci0000:00")
    assert Root(tree).read_text("/sys/bus/card/vendor") == "0x10de\n"


def test_no_link_and_no_dots_lead_out_of_the_root(tree: Path, tmp_path: Path) -> None:
    (tree / "etc/up").symlink_to("../../outside")
    (tree / "etc/away").symlink_to(tmp_path / "outside")
    root = Root(tree)
    assert root.attribute("/etc/up") is None
    assert root.attribute("/etc/away") is None
    assert root.attribute("/../../outside") is None


def test_a_loop_of_links_is_refused_by_name(tree: Path) -> None:
    (tree / "etc/a").symlink_to("b")
    (tree / "etc/b").symlink_to("a")
    with pytest.raises(errors.InvalidError, match="/etc/a: too many links"):
        Root(tree).read_text("/etc/a")
    assert not Root(tree).exists("/etc/a")


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFSOCK])
def test_what_is_no_file_is_refused_and_waits_for_nobody(tree: Path, kind: int) -> None:
    os.mknod(tree / "etc/odd", kind | 0o644)
    (tree / "etc/link").symlink_to("odd")
    for path in ("/etc/odd", "/etc/link", "/etc"):
        with pytest.raises(errors.InvalidError, match=f"{path} is not a file"):
            Root(tree).read_bytes(path)


def test_the_text_of_a_link_is_given_unresolved(tree: Path) -> None:
    (tree / "sys/bus/driver").symlink_to("../../bus/pci/drivers/nvidia")
    assert Root(tree).link("/sys/bus/driver") == "../../bus/pci/drivers/nvidia"
    assert Root(tree).link("/sys/devices") is None
    assert Root(tree).link("/sys/absent") is None


def test_absent_files_are_none_as_attributes_and_errors_as_files(tree: Path) -> None:
    assert Root(tree).attribute("/sys/absent") is None
    with pytest.raises(errors.NotFoundError, match="/sys/absent: No such file"):
        Root(tree).read_text("/sys/absent")
    with pytest.raises(errors.NotFoundError):
        Root(tree).read_text("/sys/devices/pci0000:00/vendor/deeper")


@pytest.mark.skipif(not Path("/sys/class/net/lo/speed").exists(), reason="no loopback here")
def test_an_attribute_that_the_kernel_refuses_to_value_is_none() -> None:
    assert Root("/").attribute("/sys/class/net/lo/speed") is None  # EINVAL on virtual links.


def test_an_input_output_error_is_no_missing_value() -> None:
    with pytest.raises(errors.UnavailableError, match="/proc/self/mem: Input/output error"):
        Root("/").attribute("/proc/self/mem")  # Unmapped memory at offset 0 answers EIO.


def test_a_folder_read_as_a_file_is_refused(tree: Path) -> None:
    with pytest.raises(errors.InvalidError):
        Root(tree).read_text("/etc")


def test_a_missing_folder_lists_nothing(tree: Path) -> None:
    assert Root(tree).list("/sys/absent") == []
    assert Root(tree).list("/sys") == ["bus", "devices"]


def test_writing_replaces_the_whole_file_and_leaves_nothing_else(tree: Path) -> None:
    root = Root(tree)
    root.write_atomic("/etc/state", b"one", mode=0o600)
    root.write_atomic("/etc/state", b"two", mode=0o600)
    assert (tree / "etc/state").read_bytes() == b"two"
    assert [each.name for each in (tree / "etc").iterdir()] == ["state"]
    assert (tree / "etc/state").stat().st_mode & 0o777 == 0o600


def test_writing_into_a_missing_folder_says_which_file(tree: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="state"):
        Root(tree).write_atomic("/absent/state", b"")


def test_unlink_removes_the_link_and_not_its_target(tree: Path) -> None:
    (tree / "etc/link").symlink_to("../sys/devices/pci0000:00/vendor")
    assert Root(tree).unlink("/etc/link")
    assert not Root(tree).unlink("/etc/link")
    assert Root(tree).exists("/sys/devices/pci0000:00/vendor")


def test_a_stamp_changes_when_a_file_is_replaced(tree: Path) -> None:
    root = Root(tree)
    assert root.stamp("/etc/state") is None
    root.write_atomic("/etc/state", b"one")
    before = root.stamp("/etc/state")
    root.write_atomic("/etc/state", b"two")
    assert before != root.stamp("/etc/state")


def test_paths_for_the_container_runtime_carry_its_prefix() -> None:
    assert Root("/host", on_node="/mnt/host").on_node("/dev/nvidia0") == "/mnt/host/dev/nvidia0"
    assert Root("/host", on_node="/").on_node("/dev/nvidia0") == "/dev/nvidia0"


def test_device_numbers_are_read_from_character_devices_only() -> None:
    assert Root("/").device_number("/dev/null") == (1, 3)
    assert Root("/").device_number("/proc") is None
    assert Root("/").device_number("/dev/absent") is None


def test_ownership_is_that_of_the_target(tree: Path) -> None:
    (tree / "etc/link").symlink_to("../sys/devices/pci0000:00/vendor")
    (tree / "sys/devices/pci0000:00/vendor").chmod(0o640)
    found = Root(tree).ownership("/etc/link")
    assert found is not None
    assert found[0] & 0o777 == 0o640
    assert Root(tree).ownership("/etc/absent") is None


def test_one_look_finds_what_single_questions_find(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("text\n")
    (tmp_path / "up").symlink_to("/a/b/..")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "a/b/out").symlink_to("../../../../a")
    host = Root(tmp_path)
    look = host.look()
    for _ in range(2):
        for path in (
            *("/a/b/file", "/up/b/file", "/up/b/out/b/out/b/file", "/a/b/../b/./file", "/a/b/"),
            *("/", "/loop", "/loop/x", "/absent/x", "a/b/file"),
        ):
            assert look.exists(path) == host.exists(path), path
            if "loop" not in path:
                assert look.resolve(path) == host.resolve(path), path
    assert look.attribute("/up/b/out/b/file") == "text"
