# SPDX-License-Identifier: Apache-2.0
"""How long commands wait for an API server, and what people are told of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpudeck.cli.main import main

_KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: it
contexts: [{name: it, context: {cluster: it}}]
clusters: [{name: it, cluster: {server: "SERVER", insecure-skip-tls-verify: true}}]
"""


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The address of a server that accepts connections and says nothing."""

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(swallow, "127.0.0.1", 0) as listening:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"


@pytest.fixture
def config(tmp_path: Path, silent: str) -> Path:
    path = tmp_path / "config"
    path.write_text(_KUBECONFIG.replace("SERVER", f"http://{silent}"))
    return path


async def run(config: Path, *words: str) -> Result:
    given = [*words, "--kubeconfig", str(config)]
    return await asyncio.to_thread(CliRunner().invoke, main, given)


@pytest.mark.parametrize(
    "words",
    [("get",), ("explain", "pod", "a"), ("cordon", "n/0"), ("uncordon", "n/0"), ("cleanup",)],
)
async def test_a_silent_server_ends_each_command_and_the_limit_is_said(
    config: Path, silent: str, words: tuple[str, ...]
) -> None:
    result = await run(config, *words, "--request-timeout", "200ms")
    assert result.exit_code == 1
    assert f"the API server at http://{silent} does not answer: timed out after 0.2 s" in (
        result.stderr
    )
    assert result.stderr.endswith("; --request-timeout lets it take longer\n")


async def test_a_server_that_is_not_there_is_not_waited_for(config: Path, silent: str) -> None:
    config.write_text(_KUBECONFIG.replace("SERVER", "http://127.0.0.1:9"))
    result = await run(config, "get")
    assert result.stderr == (
        "error: the API server at http://127.0.0.1:9 cannot be reached: connection refused\n"
    )


@pytest.mark.parametrize("wrong", ["soon", "-1s", "1d", "", "inf"])
async def test_a_limit_that_is_no_time_is_wrong_usage(config: Path, wrong: str) -> None:
    result = await run(config, "get", "--request-timeout", wrong)
    assert result.exit_code == 2
    assert f"{wrong!r} is not valid; allowed: a time such as 500ms, 15s or 1m, or 0" in (
        result.stderr
    )


async def test_only_a_terminal_is_told_what_is_waited_for(config: Path, silent: str) -> None:
    program = (
        "from gpudeck.cli import main, reading; reading.PATIENT_SECONDS = 0.01\n"
        f"main.main(['get', '--kubeconfig', {str(config)!r}, '--request-timeout', '0.5'])"
    )
    command = [sys.executable, "-c", program]
    terminal, theirs = os.openpty()
    await asyncio.to_thread(subprocess.run, command, stderr=theirs, check=False)
    text = os.read(terminal, 4096).decode()
    os.close(theirs)
    os.close(terminal)
    assert text.startswith(f"waiting for the API server at http://{silent} ...\r\nerror: ")
    done = await asyncio.to_thread(subprocess.run, command, stderr=subprocess.PIPE, check=False)
    assert done.stderr.startswith(b"error: ")


async def test_ctrl_c_while_a_server_is_silent_ends_in_silence(config: Path, silent: str) -> None:
    program = (
        "from gpudeck.cli import reading, starting; reading.PATIENT_SECONDS = 0.01\nstarting.main()"
    )
    terminal, theirs = os.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, "get", "--kubeconfig", str(config), stderr=theirs
    )
    os.close(theirs)
    await asyncio.to_thread(os.read, terminal, 4096)  # It waits, and says so.
    process.send_signal(signal.SIGINT)
    assert await process.wait() == -signal.SIGINT
    with pytest.raises(OSError, match="Input/output error"):  # Nothing more came before the end.
        os.read(terminal, 4096)
    os.close(terminal)
