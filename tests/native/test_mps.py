# SPDX-License-Identifier: Apache-2.0
"""The stand-in for the MPS control daemon, and libcuda as its client."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml as n
import pytest
from tests.native import hosts

pytestmark = pytest.mark.skipif(hosts.REAL, reason="about the simulation alone")


class Daemon:
    """A control daemon of one card, and the folder by which its clients find it."""

    def __init__(self, host: hosts.Host, folder: Path) -> None:
        self.host, self.folder = host, folder
        self.uuid: str = host.show()["cards"][0]["facts"]["uuid"]
        self.process = self._start()

    @property
    def environment(self) -> dict[str, str]:
        """What a client of the card is given."""
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.folder), "CUDA_VISIBLE_DEVICES": self.uuid}

    def _start(self) -> subprocess.Popen[str]:
        program = str(self.host.artifacts / "nvidia-cuda-mps-control")
        return self.host.process(program, "-f", **self.environment)

    def say(self, *commands: str) -> subprocess.CompletedProcess[str]:
        """Give commands, when the daemon is there; an ended one is tried once."""
        for _ in range(100):
            done = subprocess.run(
                [self.host.artifacts / "nvidia-cuda-mps-control"],
                input="\n".join(commands) + "\n", env=self.host.environment(**self.environment),
                capture_output=True, text=True, check=False, timeout=10,
            )  # fmt: skip
            if done.returncode == 0 or self.process.poll() is not None:
                break
        return done

    def burn(self, *words: str, **more: str) -> Any:
        return hosts.ended(self.host.burn(*words, **self.environment, **more))


@pytest.fixture
def daemon(h100: hosts.Host) -> Iterator[Daemon]:
    folder = Path(tempfile.mkdtemp(prefix="mps"))  # A socket's path has 107 bytes at most.
    made = Daemon(h100, folder)
    made.say("get_server_list")
    with hosts.ended(made.process):
        yield made
    shutil.rmtree(folder)


def exclusive(host: hosts.Host) -> None:
    host.set(0, "compute-mode=3")


def test_clients_share_an_exclusive_card_and_others_are_refused(daemon: Daemon) -> None:
    exclusive(daemon.host)
    visible = {"CUDA_VISIBLE_DEVICES": daemon.uuid, "CUDA_MPS_PIPE_DIRECTORY": "/nonexistent"}
    with daemon.burn("-m", "1024", "60") as first, daemon.burn("-m", "1024", "60") as second:
        hosts.read_until(first, "GPU 0: holding")
        hosts.read_until(second, "GPU 0: holding")
        with hosts.ended(daemon.host.burn("-m", "1", "60", **visible)) as stranger:
            assert stranger.wait(10) == 1
            assert "CUDA_ERROR_DEVICE_UNAVAILABLE" in stranger.communicate()[1]
        handle = n.nvmlDeviceGetHandleByIndex(0)
        clients = {each.pid for each in n.nvmlDeviceGetMPSComputeRunningProcesses(handle)}
        assert clients == {first.pid, second.pid}
        assert len(daemon.say("get_server_list").stdout.split()) == 1


def test_a_client_gets_no_more_than_its_own_limit(daemon: Daemon) -> None:
    limit = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2048M"}
    with daemon.burn("-m", "4096", "60", **limit) as greedy:
        assert greedy.wait(10) == 1
        assert "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY" in greedy.communicate()[1]
    with daemon.burn("-m", "4096", "60") as free, daemon.burn("-m", "1024", "60", **limit) as kept:
        hosts.read_until(free, "holding 4096 MiB")
        hosts.read_until(kept, "holding 1024 MiB")


def test_a_client_cannot_raise_the_daemon_s_limit(daemon: Daemon) -> None:
    daemon.say(f"set_default_device_pinned_mem_limit {daemon.uuid} 1G")
    limit = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"{daemon.uuid}=8G"}
    with daemon.burn("-m", "4096", "60", **limit) as greedy:
        assert greedy.wait(10) == 1


def test_clients_fail_when_their_daemon_ends(daemon: Daemon) -> None:
    with daemon.burn("-m", "1", "60") as client:
        hosts.read_until(client, "holding")
        daemon.process.kill()
        assert client.wait(10) == 1
        assert "CUDA_ERROR_MPS_RPC_FAILURE" in client.communicate()[1]


def test_a_card_that_the_daemon_does_not_serve_is_not_there(daemon: Daemon) -> None:
    other = daemon.host.show()["cards"][1]["facts"]["uuid"]
    mine = {**daemon.environment, "CUDA_VISIBLE_DEVICES": other}
    with hosts.ended(daemon.host.burn("-m", "1", "60", **mine)) as client:
        assert client.wait(10) == 1
        assert "CUDA_ERROR_NO_DEVICE" in client.communicate()[1]


def test_there_is_one_daemon_a_folder(daemon: Daemon) -> None:
    with hosts.ended(Daemon(daemon.host, daemon.folder).process) as second:
        assert second.wait(10) == 1
        assert "already running" in second.communicate()[1]
    assert daemon.say("get_default_active_thread_percentage").stdout == "100.0\n"


def test_a_daemon_is_told_to_quit_and_then_is_not_found(daemon: Daemon) -> None:
    assert daemon.say("set_default_active_thread_percentage 25").stdout == "25.0\n"
    assert daemon.say("quit").returncode == 0
    assert daemon.process.wait(10) == 0
    gone = daemon.say("get_server_list")
    assert (gone.returncode, gone.stderr) == (1, "Cannot find MPS control daemon process\n")
