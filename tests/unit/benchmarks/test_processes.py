# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys

from benchmarks import processes


def test_the_size_of_a_process_is_what_the_kernel_says() -> None:
    size = processes.size(os.getpid())
    assert 0 < size.anonymous <= size.rss
    assert 0 < size.pss <= size.rss
    assert size.threads >= 1
    assert size.cpu_seconds > 0


def test_what_processes_share_counts_once() -> None:
    text = "print(); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", text], stdin=pipe, stdout=pipe) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"\n"
        pids = [os.getpid(), other.pid]
        apart = sum(processes.together([pid]) for pid in pids)
        assert 0 < processes.together(pids) < apart <= sum(processes.size(pid).rss for pid in pids)
        other.communicate(b"\n")


def test_processes_outside_the_lab_are_not_found() -> None:
    assert processes.found("gpudeck/no-such-lab") == []
