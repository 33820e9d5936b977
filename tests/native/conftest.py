# SPDX-License-Identifier: Apache-2.0
"""Builds the native artefacts once and initialises NVML on a simulated host, or on a real one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pynvml
import pytest
from tests.native import hosts

from gpudeck.lab import places, simulation


@pytest.fixture(scope="session")
def artifacts() -> Path:
    built = simulation.build_native(places.cache())
    ctypes.CDLL(str(built / "libnvidia-ml.so.1"))  # pynvml asks for this name, and is given it.
    return built


def _shut_down() -> None:
    with suppress(pynvml.NVMLError):
        while True:
            pynvml.nvmlShutdown()


Initialise = Callable[[hosts.Host], None]


@pytest.fixture
def initialise(artifacts: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Initialise]:
    """Initialises NVML of this process on a host, after an earlier one is shut down."""

    def on(host: hosts.Host) -> None:
        _shut_down()
        monkeypatch.setenv("GPUDECK_SIMULATION", str(host.folder))
        monkeypatch.setenv("GPUDECK_SIMULATION_DEV", str(host.devices))
        pynvml.nvmlInit()

    yield on
    _shut_down()


@pytest.fixture
def make_host(artifacts: Path, tmp_path: Path) -> Callable[..., hosts.Host]:
    made: list[hosts.Host] = []

    def make(name: str, *replacements: tuple[str, str]) -> hosts.Host:
        text = hosts.description(name, *replacements)
        made.append(hosts.Host.create(artifacts, tmp_path / str(len(made)), text))
        return made[-1]

    return make


@pytest.fixture
def h100(make_host: Any, initialise: Initialise) -> hosts.Host:
    """Two H100, with NVML of this process initialised on them."""
    host: hosts.Host = make_host("h100-x2")
    initialise(host)
    return host


@pytest.fixture
def t4(make_host: Any, initialise: Initialise) -> hosts.Host:
    host: hosts.Host = make_host("t4-x1")
    initialise(host)
    return host


@pytest.fixture(params=["real"] if hosts.REAL else ["h100-x2", "t4-x1"])
def nvml(request: pytest.FixtureRequest) -> Iterator[Any]:
    """NVML initialised on whatever is there; tests skip by what it says it can do."""
    if hosts.REAL:
        pynvml.nvmlInit()
    else:
        host = request.getfixturevalue("make_host")(request.param)
        request.getfixturevalue("initialise")(host)
    yield pynvml
    _shut_down()


@pytest.fixture
def device(nvml: Any) -> Any:
    return nvml.nvmlDeviceGetHandleByIndex(0)
