# SPDX-License-Identifier: Apache-2.0
"""Limits of a card's memory by cgroup: set by root, kept by libcuda, gone with the folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pynvml as n
import pytest
from tests.native import hosts

_ROOTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/pids"))
_ROOT = next((root for root in _ROOTS if (root / "cgroup.procs").exists()), None)

pytestmark = [
    pytest.mark.skipif(hosts.REAL, reason="about the simulation alone"),
    pytest.mark.skipif(_ROOT is None or os.geteuid() != 0, reason="makes cgroups"),
]

MIB = 1 << 20
NEW_DRIVER = ("cuda 13000", "cuda 13040")


class Group:
    """A cgroup of the test, which processes can be started in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    @property
    def before(self) -> tuple[str, ...]:
        """The words that start a program inside."""
        return ("sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh")

    def inside(self, folder: Path) -> tuple[str, ...]:
        """The words that start a program as a container, whose cgroup is the root that it sees."""
        kind = "cgroup -o pids" if self.path.is_relative_to("/sys/fs/cgroup/pids") else "cgroup2"
        start = f'mkdir -p {folder} && mount -t {kind} cgroup {folder} && exec "$@"'
        return (*self.before, "unshare", "--cgroup", "--mount", "sh", "-c", start, "sh")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    assert _ROOT is not None
    made = Group(_ROOT / f"gpudeck-test-{os.getpid()}-{tmp_path.name}"[:200])
    yield made
    with suppress(FileNotFoundError):
        made.path.rmdir()


@pytest.fixture
def host(make_host: Any, initialise: Any) -> hosts.Host:
    made: hosts.Host = make_host("h100-x2", NEW_DRIVER)
    initialise(made)
    return made


def limit(path: Path, soft: int, hard: int, *, index: int = 0) -> None:
    limits = n.c_nvmlSetMemoryLimits_v1_t(str(path).encode(), soft, hard)
    n.nvmlDeviceSetMemoryLimits_v1(n.nvmlDeviceGetHandleByIndex(index), limits)


def limits_of(path: Path, *, index: int = 0) -> tuple[int, int, int]:
    limits = n.c_nvmlGetMemoryLimits_v1_t(str(path).encode(), 0, 0, 0)
    n.nvmlDeviceGetMemoryLimits_v1(n.nvmlDeviceGetHandleByIndex(index), limits)
    return limits.softLimit, limits.hardLimit, limits.currentUsed


def refuses(code: int, path: Path, *amounts: int) -> None:
    with pytest.raises(n.NVMLError) as raised:
        limit(path, *amounts) if amounts else limits_of(path)
    assert raised.value.value == code


def test_a_process_cannot_pass_its_limit_and_its_neighbour_keeps_its_own(
    host: hosts.Host, group: Group
) -> None:
    limit(group.path, 8192 * MIB, 8192 * MIB)
    with hosts.ended(host.burn("-m", "7168", "60")) as neighbour:
        hosts.read_until(neighbour, "GPU 1: holding 7168 MiB")
        with hosts.ended(host.burn("-m", "12288", "60", before=group.before)) as greedy:
            assert greedy.wait(10) == 1
            assert "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY" in greedy.communicate()[1]
        with hosts.ended(host.burn("-m", "7168", "60", before=group.before)) as modest:
            hosts.read_until(modest, "GPU 1: holding 7168 MiB")
            assert limits_of(group.path)[2] > 7168 * MIB
        assert neighbour.poll() is None


def test_all_processes_of_a_cgroup_and_below_share_its_limit(
    host: hosts.Host, group: Group
) -> None:
    limit(group.path, 0, 8192 * MIB)
    below = Group(group.path / "below")
    with hosts.ended(host.burn("-m", "5000", "60", before=below.before)) as first:
        hosts.read_until(first, "GPU 0: holding 5000 MiB")
        with hosts.ended(host.burn("-m", "5000", "60", before=group.before)) as second:
            assert second.wait(10) == 1
    first.wait()
    below.path.rmdir()


def test_a_container_that_sees_its_own_cgroup_alone_counts_for_the_limit_above(
    host: hosts.Host, group: Group, tmp_path: Path
) -> None:
    one, other = Group(group.path / "one"), Group(group.path / "other")
    limit(group.path, 0, 8192 * MIB)
    for each in one, other:
        limit(each.path, 0, 8192 * MIB)
    with hosts.ended(
        host.burn("-m", "5000", "60", before=one.inside(tmp_path / "groups"))
    ) as first:
        hosts.read_until(first, "GPU 0: holding 5000 MiB")
        assert limits_of(group.path)[2] > 5000 * MIB
        with hosts.ended(
            host.burn("-m", "5000", "60", before=other.inside(tmp_path / "groups"))
        ) as second:
            assert second.wait(10) == 1
            assert "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY" in second.communicate()[1]
    for each in one, other:
        each.path.rmdir()


def test_a_process_sees_what_it_can_really_have(host: hosts.Host, group: Group) -> None:
    limit(group.path, 1024 * MIB, 2048 * MIB)
    look = """
        h = n.nvmlDeviceGetHandleByIndex(0)
        print(n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2).free >> 20, flush=True)
    """
    with hosts.ended(host.python(look, before=group.before)) as inside:
        assert inside.communicate(timeout=10)[0] == "2048\n"
    memory = n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(0), n.nvmlMemory_v2)
    assert memory.free > 70_000 * MIB


def test_a_limit_is_of_one_card_and_one_cgroup(host: hosts.Host, group: Group) -> None:
    limit(group.path, 1, 2, index=1)
    assert limits_of(group.path, index=1) == (1, 2, 0)
    refuses(n.NVML_ERROR_NOT_FOUND, group.path)
    limit(group.path, 3, 4, index=1)
    assert limits_of(group.path, index=1) == (3, 4, 0)


def test_limits_go_with_their_cgroup(host: hosts.Host, group: Group) -> None:
    limit(group.path, 1, 2)
    group.path.rmdir()
    refuses(n.NVML_ERROR_OPERATING_SYSTEM, group.path)
    group.path.mkdir()
    refuses(n.NVML_ERROR_NOT_FOUND, group.path)


def test_places_of_cgroups_that_are_gone_are_used_again(host: hosts.Host, group: Group) -> None:
    for _ in range(300):
        limit(group.path, 1, 2)
        group.path.rmdir()
        group.path.mkdir()
    limit(group.path, 1, 2)
    assert limits_of(group.path)[:2] == (1, 2)


def test_unlimited_takes_a_limit_away(host: hosts.Host, group: Group) -> None:
    limit(group.path, 1, 2)
    limit(group.path, 0, n.NVML_DEVICE_MEMORY_LIMIT_MAX)
    refuses(n.NVML_ERROR_NOT_FOUND, group.path)


def test_senseless_limits_are_refused(host: hosts.Host, group: Group, tmp_path: Path) -> None:
    refuses(n.NVML_ERROR_INVALID_ARGUMENT, group.path, 2, 1)
    refuses(n.NVML_ERROR_INVALID_ARGUMENT, group.path, 0, 1 << 50)
    refuses(n.NVML_ERROR_OPERATING_SYSTEM, tmp_path, 0, 1)
    refuses(n.NVML_ERROR_OPERATING_SYSTEM, group.path / "none", 0, 1)
    card = n.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(n.NVMLError_InvalidArgument):
        n.nvmlDeviceSetMemoryLimits_v1(card, n.c_nvmlSetMemoryLimits_v1_t(None, 0, 1))


def test_only_an_administrator_may_set_them(host: hosts.Host, group: Group) -> None:
    code = """
        h = n.nvmlDeviceGetHandleByIndex(0)
        try:
            n.nvmlDeviceSetMemoryLimits_v1(
                h, n.c_nvmlSetMemoryLimits_v1_t(sys.argv[1].encode(), 0, 1))
        except n.NVMLError as error:
            print(error.value)
    """
    without = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
    with hosts.ended(host.python(code, str(group.path), before=without)) as caller:
        assert caller.communicate(timeout=10)[0] == f"{n.NVML_ERROR_NO_PERMISSION}\n"


def test_mig_devices_have_no_limits(host: hosts.Host, group: Group) -> None:
    limits = n.c_nvmlSetMemoryLimits_v1_t(str(group.path).encode(), 0, 1)
    card = n.nvmlDeviceGetHandleByIndex(0)
    n.nvmlDeviceSetMigMode(card, 1)
    instance = n.nvmlDeviceCreateGpuInstance(card, n.NVML_GPU_INSTANCE_PROFILE_1_SLICE)
    n.nvmlGpuInstanceCreateComputeInstance(instance, n.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE)
    device = n.nvmlDeviceGetMigDeviceHandleByIndex(card, 0)
    with pytest.raises(n.NVMLError_NotSupported):
        n.nvmlDeviceSetMemoryLimits_v1(device, limits)


@pytest.mark.parametrize("change", ["lacks memory-limits\n", ""])
def test_older_drivers_and_other_cards_have_none(
    make_host: Any, initialise: Any, group: Group, change: str
) -> None:
    driver = "cuda 13040" if change else "cuda 13000"
    made = make_host("h100-x2", ("cuda 13000", driver), ("  minor 0\n", f"  minor 0\n{change}"))
    initialise(made)
    refuses(n.NVML_ERROR_NOT_SUPPORTED, group.path, 0, 1)
    refuses(n.NVML_ERROR_NOT_SUPPORTED, group.path)
