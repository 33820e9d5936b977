# SPDX-License-Identifier: Apache-2.0
"""The processes as commands: they end cleanly on SIGTERM, and failures are one line."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner
from tests.support.apiserver import ApiServer

from gpudeck import errors
from gpudeck.api.resources import LEASE
from gpudeck.cli import processes
from gpudeck.cli.main import main

NAMES = [
    "controller", "node-agent", "dra-plugin", "adapter", "device-plugin", "mps-control", "features",
    "gfd", "mig-manager",
]  # fmt: skip
IN_A_POD = "KUBERNETES_SERVICE_HOST"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_process_cleanly(number: signal.Signals) -> None:
    async with ApiServer() as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "from gpudeck.cli.main import main; main()", "controller",
            "--kubeconfig", server.kubeconfig(), "--namespace", "gpudeck-system",
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            await server.until(lambda: server.objects(LEASE), seconds=60)
            process.send_signal(number)
            _, said = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()
    assert process.returncode == 0, said.decode()
    assert b"Traceback" not in said


@pytest.mark.parametrize("name", NAMES)
def test_the_options_of_a_process_are_its_settings(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert "--log-level" in result.output
    assert "GPUDECK_LOG_LEVEL" in result.output


def test_a_bad_setting_is_wrong_usage_and_names_the_flag() -> None:
    result = CliRunner().invoke(main, ["controller", "--metrics-port", "many"])
    assert result.exit_code == 2
    assert result.stderr == (
        "error: --metrics-port: 'many' is not valid; allowed: a whole number\n"
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_level_that_no_log_has_is_refused(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--log-level", "loud"])
    assert result.exit_code == 2
    said = "error: --log-level: 'loud' is not valid; allowed: debug, info, warning, error\n"
    assert result.stderr == said


def test_no_number_of_seconds_is_not_a_number() -> None:
    result = CliRunner().invoke(main, ["adapter", "--poll-seconds", "nan"])
    assert result.stderr == "error: --poll-seconds: 'nan' is not valid; allowed: a number\n"


def test_a_bad_environment_variable_is_named() -> None:
    result = CliRunner().invoke(main, ["controller"], env={"GPUDECK_METRICS_PORT": "many"})
    assert result.exit_code == 2
    assert "GPUDECK_METRICS_PORT: 'many'" in result.stderr


def test_outside_a_pod_a_process_asks_for_a_kubeconfig() -> None:
    """In a process of its own, whose signals and log it takes."""
    outside = {name: value for name, value in os.environ.items() if name != IN_A_POD}
    program = [sys.executable, "-c", "from gpudeck.cli.main import main; main()", "controller"]
    done = subprocess.run(program, env=outside, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "kubeconfig: empty" in done.stderr


def test_our_own_error_is_taken_out_of_its_task_groups() -> None:
    lost = errors.LeadershipLostError("lease a/b: it is held by c")
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [lost])])
    assert processes.only_error(group) is lost


def test_a_bug_beside_our_own_error_is_not_hidden() -> None:
    group = ExceptionGroup("group", [errors.UnavailableError("away"), ZeroDivisionError()])
    assert processes.only_error(group) is group
