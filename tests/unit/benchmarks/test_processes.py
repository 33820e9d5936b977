# SPDX-License-Identifier: Apache-2.0
import os

from benchmarks import processes


def test_the_size_of_a_process_is_what_the_kernel_says() -> None:
    size = processes.size(os.getpid())
    assert 0 < size.anonymous <= size.rss
    assert 0 < size.pss <= size.rss
    assert size.threads >= 1
    assert size.cpu_seconds > 0


def test_processes_outside_the_lab_are_not_found() -> None:
    assert processes.found("gpudeck/no-such-lab") == []
