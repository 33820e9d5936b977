# SPDX-License-Identifier: Apache-2.0
"""What a process does not load before it serves: it is paid for at each start, on every node."""

from __future__ import annotations

import subprocess
import sys

import pytest

_HTTP, _GRPC, _MAKER, _CERTIFICATES = "aiohttp", "grpc", "pynvml", "cryptography"


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("gpudeck.cli.main", (_HTTP, _GRPC, _MAKER, _CERTIFICATES, "rich")),
        ("gpudeck.deviceplugin.main", (_HTTP, _MAKER, _CERTIFICATES, "rich", "yaml")),
        ("gpudeck.dra.main", (_HTTP, _MAKER, _CERTIFICATES, "rich")),
        ("gpudeck.gfd.serving", (_HTTP, _GRPC, _MAKER, _CERTIFICATES, "rich", "yaml")),
        ("gpudeck.features.worker", (_HTTP, _GRPC, _MAKER, _CERTIFICATES, "rich")),
        ("gpudeck.repartitioning.main", (_HTTP, _GRPC, _MAKER, _CERTIFICATES, "rich")),
        ("gpudeck.agent.main", (_HTTP, _GRPC, _MAKER, _CERTIFICATES, "rich")),
        ("gpudeck.vendors.worker", (_HTTP, _GRPC, _CERTIFICATES, "rich", "yaml", "click")),
        ("gpudeck.vendors.nvidia.session", (_HTTP, _GRPC, _CERTIFICATES, "asyncio", "yaml")),
    ],
)
def test_a_start_is_spared_what_is_needed_later_or_never(
    module: str, absent: tuple[str, ...]
) -> None:
    text = f"import sys, {module}; print(sorted(set({absent!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"


_FORKED = """
import os, sys, threading

def fork():
    loaded = sorted({"grpc", "uvloop", "aiohttp"} & set(sys.modules))
    print(threading.active_count(), loaded, flush=True)
    os._exit(0)

os.fork = fork
from gpudeck.cli.main import main
main()
"""


@pytest.mark.parametrize("words", [("adapter", "nvidia"), ("device-plugin",), ("gfd",)])
def test_a_library_process_is_forked_before_there_are_threads_and_what_starts_some(
    words: tuple[str, ...],
) -> None:
    command = [sys.executable, "-c", _FORKED, *words]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "1 []"
