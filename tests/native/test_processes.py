# SPDX-License-Identifier: Apache-2.0
"""Processes on cards: seen with the right pid from every pid namespace, gone when they end."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

import pynvml as n
import pytest
from tests.native import hosts

pytestmark = pytest.mark.skipif(hosts.REAL, reason="about the simulation alone")
MIB = 1 << 20
NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def pids(index: int = 0) -> list[int]:
    card = n.nvmlDeviceGetHandleByIndex(index)
    return [process.pid for process in n.nvmlDeviceGetComputeRunningProcesses(card)]


def used(index: int = 0) -> int:
    card = n.nvmlDeviceGetHandleByIndex(index)
    used_bytes: int = n.nvmlDeviceGetMemoryInfo(card, n.nvmlMemory_v2).used
    return used_bytes


def children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as listed:  # noqa: PTH123
        return [int(child) for child in listed.read().split()]


def test_a_workload_is_seen_with_its_memory_and_load(h100: hosts.Host) -> None:
    with hosts.ended(h100.burn("-m", "2048", "60")) as burn:
        text = hosts.read_until(burn, "GPU 1: holding 2048 MiB")
        assert "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a0b0c0d0-1111-4222-8333" in text
        assert pids(0) == pids(1) == [burn.pid]
        assert used() > 2048 * MIB
        card = n.nvmlDeviceGetHandleByIndex(0)
        assert n.nvmlDeviceGetUtilizationRates(card).gpu > 90
        assert n.nvmlDeviceGetPowerUsage(card) > 600_000
        assert n.nvmlDeviceGetProcessUtilization(card, 0)[0].pid == burn.pid
        assert n.nvmlSystemGetProcessName(burn.pid).endswith("gpu-burn")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_memory_is_free_when_its_process_ends(h100: hosts.Host, how: signal.Signals) -> None:
    with hosts.ended(h100.burn("-m", "50%", "60")) as burn:
        hosts.read_until(burn, "GPU 1: holding")
        assert used(1) > 40_000 * MIB
        burn.send_signal(how)
        assert burn.wait(10) == (-9 if how is signal.SIGKILL else 0)
    assert used(0) == used(1) == 0
    assert pids() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces")
def test_pids_are_those_of_the_asker_s_namespace(h100: hosts.Host) -> None:
    look = """
        h = n.nvmlDeviceGetHandleByIndex(0)
        print(sorted(p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(h)),
              n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2).used >> 20, flush=True)
    """
    with (
        hosts.ended(h100.burn("-m", "1024", "60", before=NAMESPACE)) as inner,
        hosts.ended(h100.burn("-m", "1024", "60")) as outer,
    ):
        hosts.read_until(inner, "GPU 1: holding")
        hosts.read_until(outer, "GPU 1: holding")
        assert sorted(pids()) == sorted([*children(inner.pid), outer.pid])
        with hosts.ended(h100.python(look, before=NAMESPACE)) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == f"[] {used() // MIB}\n"
        with hosts.ended(
            h100.python(look, before=("nsenter", "--pid", f"--target={children(inner.pid)[0]}"))
        ) as beside:
            assert beside.stdout is not None
            assert beside.stdout.readline() == f"[1] {used() // MIB}\n"
        outer.kill()
        outer.wait(10)
        assert pids() == children(inner.pid)


def test_a_full_card_refuses_more(h100: hosts.Host) -> None:
    with hosts.ended(h100.burn("-m", "80000", "60")) as first:
        hosts.read_until(first, "GPU 1: holding")
        second = h100.burn("-m", "2048", "1")
        assert "CUDA_ERROR_OUT_OF_MEMORY" in second.communicate(timeout=20)[1]
        assert second.returncode == 1


def test_workloads_that_start_at_once_share_what_is_free(h100: hosts.Host) -> None:
    for _ in range(10):
        with contextlib.ExitStack() as stack:
            burns = [stack.enter_context(hosts.ended(h100.burn("60"))) for _ in range(3)]
            for burn in burns:
                hosts.read_until(burn, "GPU 1: holding")


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [("1", ["d1"]), ("GPU-a0b0c0d1", ["d1"]), ("1,0", ["d1", "d0"]), ("0,9,1", ["d0"]), ("", [])],
)
def test_cuda_sees_what_its_variable_names(h100: hosts.Host, wanted: str, seen: list[str]) -> None:
    burn = h100.burn("-m", "1", "0", CUDA_VISIBLE_DEVICES=wanted)
    text, errors = burn.communicate(timeout=20)
    named = [line.split("GPU-a0b0c0")[1][:2] for line in text.splitlines() if "UUID" in line]
    assert named == seen
    assert (burn.returncode, "no CUDA devices" in errors) == ((0, False) if seen else (1, True))


def test_an_exclusive_card_takes_one_process(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    n.nvmlDeviceSetComputeMode(card, n.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    with hosts.ended(h100.burn("-m", "1", "60", CUDA_VISIBLE_DEVICES="0")) as first:
        hosts.read_until(first, "GPU 0: holding")
        second = h100.burn("-m", "1", "0", CUDA_VISIBLE_DEVICES="0")
        assert "CUDA_ERROR_DEVICE_UNAVAILABLE" in second.communicate(timeout=20)[1]


def test_one_process_may_hold_cards_and_look_at_them(h100: hosts.Host) -> None:
    code = """
        import ctypes
        cuda = ctypes.CDLL('libcuda.so.1')
        context, pointer = ctypes.c_void_p(), ctypes.c_ulonglong()
        assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
        assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 30)) == 0
        h = n.nvmlDeviceGetHandleByIndex(0)
        print([p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(h)], flush=True)
        sys.stdin.readline()
        cuda.cuMemFree_v2(pointer); n.nvmlShutdown(); n.nvmlInit()
        print(n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2).used >> 20, flush=True)
        sys.stdin.readline()
        cuda.cuCtxDestroy_v2(context)
        print([p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(h)], flush=True)
        sys.stdin.readline()
    """
    with hosts.ended(h100.python(code)) as both:
        assert both.stdout is not None
        assert both.stdin is not None
        assert both.stdout.readline() == f"[{both.pid}]\n"
        assert pids() == [both.pid]
        both.stdin.write("\n")
        both.stdin.flush()
        left = int(both.stdout.readline())
        assert 0 < left < 1024
        assert used() == left * MIB
        both.stdin.write("\n")
        both.stdin.flush()
        assert both.stdout.readline() == "[]\n"
        assert used() == 0


def test_a_forked_child_is_a_process_of_its_own(h100: hosts.Host) -> None:
    code = """
        import ctypes, os
        cuda = ctypes.CDLL('libcuda.so.1')
        def hold():
            context = ctypes.c_void_p()
            assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
        hold()
        r, w = os.pipe()
        if os.fork() == 0:
            hold(); os.write(w, b'x'); time.sleep(60)
        os.read(r, 1); print('both', flush=True); time.sleep(60)
    """
    with hosts.ended(h100.python(code)) as parent:
        hosts.read_until(parent, "both")
        child = children(parent.pid)[0]
        assert sorted(pids()) == sorted([parent.pid, child])
        os.kill(child, signal.SIGKILL)
        parent_alone = [parent.pid]
        os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        assert wait_for(lambda: pids() == parent_alone)


def wait_for(condition: Any) -> bool:
    """True once the condition holds; the kernel frees a killed process's locks in its own time."""
    return any(condition() for _ in range(2000))


def test_a_workload_fails_when_its_card_falls_off_the_bus(h100: hosts.Host) -> None:
    with hosts.ended(h100.burn("-m", "1", "60")) as burn:
        hosts.read_until(burn, "GPU 1: holding")
        h100.set(1, "lose=15")
        assert "GPU 1 stopped working" in burn.communicate(timeout=20)[1]
        assert burn.returncode == 1


def test_a_pretend_process_stays_until_it_is_taken_away(h100: hosts.Host) -> None:
    h100.set(0, "busy=4711:1000:40")
    card = n.nvmlDeviceGetHandleByIndex(0)
    assert pids() == [4711]
    assert used() == 1000 * MIB
    assert n.nvmlDeviceGetUtilizationRates(card).gpu == 40
    h100.set(0, "idle=4711")
    assert (pids(), used()) == ([], 0)


def test_lists_of_every_version_name_the_same_processes(h100: hosts.Host) -> None:
    h100.set(0, "busy=4711:1000", "busy=4712:500")
    card = n.nvmlDeviceGetHandleByIndex(0)
    count = n.c_uint(0)
    function = n.nvmlLib.nvmlDeviceGetComputeRunningProcesses_v3
    assert function(card, n.byref(count), None) == n.NVML_ERROR_INSUFFICIENT_SIZE
    assert count.value == 2
    old = (n.c_ulonglong * 4)()  # Entries of version 1: a pid and the memory, 16 bytes.
    count = n.c_uint(2)
    assert n.nvmlLib.nvmlDeviceGetComputeRunningProcesses(card, n.byref(count), old) == 0
    assert [old[0], old[1], old[2], old[3]] == [4711, 1000 * MIB, 4712, 500 * MIB]
    details = n.nvmlDeviceGetRunningProcessDetailList(card, n.nvmlProcessDetailList_v1, 0)
    assert [detail.pid for detail in details] == [4711, 4712]
    assert n.nvmlDeviceGetGraphicsRunningProcesses(card) == []


def test_accounting_tells_of_running_processes(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(n.NVMLError_NotSupported):
        n.nvmlDeviceGetAccountingPids(card)
    n.nvmlDeviceSetAccountingMode(card, 1)
    h100.set(0, "busy=4711:1000")
    assert n.nvmlDeviceGetAccountingPids(card) == [4711]
    stats = n.nvmlDeviceGetAccountingStats(card, 4711)
    assert (stats.maxMemoryUsage, stats.isRunning) == (1000 * MIB, 1)
