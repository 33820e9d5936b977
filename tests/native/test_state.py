# SPDX-License-Identifier: Apache-2.0
"""The shared state survives writers that die and writers that come at the same moment."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pynvml as n
import pytest
from tests.native import hosts

from gpudeck.lab import simulation

pytestmark = [
    pytest.mark.skipif(hosts.REAL, reason="about the simulation alone"),
    pytest.mark.skipif(os.geteuid() != 0, reason="partitions need an administrator"),
]


@pytest.fixture(scope="module")
def dying_writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("writer") / "dies-inside"
    names = ("state.c", "ring.c", "client.c", "capability.c")
    sources = [simulation.SOURCES / name for name in names]
    source = hosts.DESCRIPTIONS / "dies-inside.c"
    include = f"-I{simulation.SOURCES}"
    subprocess.run(["gcc", "-pthread", include, "-o", program, source, *sources], check=True)
    return program


@pytest.mark.parametrize("step", range(3))
def test_a_writer_killed_inside_a_transaction_leaves_the_card_as_it_was(
    h100: hosts.Host, dying_writer: Path, step: int
) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    n.nvmlDeviceSetMigMode(card, 1)
    n.nvmlGpuInstanceCreateComputeInstance(n.nvmlDeviceCreateGpuInstance(card, 9), 2)
    before = h100.state()
    killed = subprocess.run([dying_writer, h100.folder, str(step)], check=False, timeout=30)
    assert killed.returncode == -signal.SIGKILL
    assert n.nvmlDeviceGetMigMode(card) == [1, 1]  # A reader repairs, and is not kept waiting.
    assert h100.state() == before
    n.nvmlDeviceCreateGpuInstance(card, 14)
    assert len(h100.state()["instances"]) == 2


def test_what_a_killed_writer_had_published_stands(h100: hosts.Host, dying_writer: Path) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    subprocess.run([dying_writer, h100.folder, "3"], check=False, timeout=30)
    assert n.nvmlDeviceGetPersistenceMode(card) == 1
    n.nvmlDeviceSetComputeMode(card, n.NVML_COMPUTEMODE_PROHIBITED)
    assert n.nvmlDeviceGetPersistenceMode(card) == 1


CHURN = """
    import random, threading
    def churn(seed):
        luck = random.Random(seed)
        h = n.nvmlDeviceGetHandleByIndex(0)
        own, until = [], time.monotonic() + float(sys.argv[1])
        while time.monotonic() < until:
            try:
                if own and luck.random() < 0.5:
                    g, c = own.pop(luck.randrange(len(own)))
                    n.nvmlComputeInstanceDestroy(c)
                    n.nvmlGpuInstanceDestroy(g)
                else:
                    g = n.nvmlDeviceCreateGpuInstance(h, luck.choice([19, 14, 9, 15]))
                    own.append((g, n.nvmlGpuInstanceCreateComputeInstance(g, full[info(g)])))
            except n.NVMLError_InsufficientResources:
                pass
        for g, c in own:
            n.nvmlComputeInstanceDestroy(c)
            n.nvmlGpuInstanceDestroy(g)
    full = {19: 0, 15: 0, 14: 1, 9: 2}
    info = lambda g: n.nvmlGpuInstanceGetInfo(g).profileId
    print('running', flush=True)
    threads = [threading.Thread(target=churn, args=(s,)) for s in (int(sys.argv[2]), 99)]
    [t.start() for t in threads]; [t.join() for t in threads]
    print('done', flush=True)
"""


def check_layout(instances: list[dict[str, Any]]) -> None:
    taken: set[int] = set()
    for instance in instances:
        places = set(range(instance["start"], instance["start"] + instance["size"]))
        assert not places & taken, instances
        taken |= places
    slices = {19: 1, 15: 1, 14: 2, 9: 3}
    assert sum(slices[instance["profile"]] for instance in instances) <= 7


def test_two_processes_with_two_threads_each_never_share_a_place(h100: hosts.Host) -> None:
    n.nvmlDeviceSetMigMode(n.nvmlDeviceGetHandleByIndex(0), 1)
    with (
        hosts.ended(h100.python(CHURN, "1.0", "1")) as one,
        hosts.ended(h100.python(CHURN, "1.0", "2")) as two,
    ):
        hosts.read_until(one, "running")
        while one.poll() is None or two.poll() is None:
            check_layout(h100.state()["instances"])
        assert (one.returncode, two.returncode) == (0, 0), one.communicate() + two.communicate()
    assert h100.state()["instances"] == []
    assert list((h100.folder / "proc/driver/nvidia/capabilities/gpu0/mig").iterdir()) == []


def test_killed_at_any_moment_the_next_process_goes_on(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    n.nvmlDeviceSetMigMode(card, 1)
    for moment in range(12):
        with hosts.ended(h100.python(CHURN, "30", str(moment))) as writer:
            hosts.read_until(writer, "running")
            reached = time.monotonic() + moment * 0.003
            while time.monotonic() < reached:
                n.nvmlDeviceGetMemoryInfo(card)
        check_layout(h100.state()["instances"])
        h100.set(0, "mig-mode=1")  # A writer comes through, and the files follow.
        assert not list(h100.folder.glob("proc/driver/nvidia/capabilities/gpu0/mig/gi*"))


def test_readers_see_whole_transactions_only(h100: hosts.Host) -> None:
    card = n.nvmlDeviceGetHandleByIndex(0)
    code = """
        h = n.nvmlDeviceGetHandleByIndex(0)
        print('running', flush=True)
        for i in range(4000):
            n.nvmlDeviceSetGpuLockedClocks(h, 500 + i % 400, 500 + i % 400)
        print('done', flush=True)
    """
    h100.set(0, "utilization=100")
    with hosts.ended(h100.python(code)) as writer:
        hosts.read_until(writer, "running")
        clocks = set()
        while writer.poll() is None:
            clocks.add(n.nvmlDeviceGetClockInfo(card, n.NVML_CLOCK_SM))
        assert writer.returncode == 0
    assert clocks <= {1980, *range(500, 900)}


def test_a_fork_does_not_inherit_its_parent_s_lock(h100: hosts.Host) -> None:
    code = """
        import os, threading
        h = n.nvmlDeviceGetHandleByIndex(0)
        stop = []
        def churn():
            while not stop:
                n.nvmlDeviceSetPersistenceMode(h, 1)
        threads = [threading.Thread(target=churn) for _ in range(2)]
        [t.start() for t in threads]
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                n.nvmlDeviceSetPersistenceMode(h, 0)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        stop.append(1)
        [t.join() for t in threads]
        print('done', flush=True)
    """
    with hosts.ended(h100.python(code)) as parent:
        hosts.read_until(parent, "done")


def test_a_read_only_folder_can_be_read(h100: hosts.Host, tmp_path: Path) -> None:
    view = tmp_path / "view"
    view.mkdir()
    code = """
        h = n.nvmlDeviceGetHandleByIndex(0)
        print(n.nvmlDeviceGetName(h), n.nvmlDeviceGetTotalEnergyConsumption(h) >= 0, end=' ')
        print(n.nvmlLib.nvmlDeviceSetPersistenceMode(h, 1))
    """
    bind = f"mount --bind '{h100.folder}' '{view}' && mount -o remount,bind,ro '{view}'"
    shell = f'{bind} && GPUDECK_SIMULATION={view} exec "$@"'
    with hosts.ended(
        h100.python(code, before=("unshare", "-m", "sh", "-c", shell, "sh"))
    ) as reader:
        out, errors = reader.communicate(timeout=30)
        assert out == "NVIDIA H100 80GB HBM3 True 4\n", errors
