# SPDX-License-Identifier: Apache-2.0
"""The host's own systemctl, in the host's root, stops and starts units and reboots the host."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.systemctl import Systemctl

from gpudeck import errors
from gpudeck.host import systemctl
from gpudeck.host.root import Root

UNITS = ("dcgm.service", "nvsm.service", "x.service", "gone.service")


async def test_the_host_is_told_to_reboot(tmp_path: Path) -> None:
    host = Systemctl(tmp_path)
    await systemctl.reboot(Root(tmp_path))
    assert host.told == ["reboot"]


async def test_a_refusal_is_told_in_its_own_words(tmp_path: Path) -> None:
    Systemctl(tmp_path).stick("reboot.target")
    with pytest.raises(errors.UnavailableError, match="systemctl reboot: Failed to reboot: not"):
        await systemctl.reboot(Root(tmp_path))


async def test_a_host_without_systemctl_is_to_be_rebooted_by_hand(tmp_path: Path) -> None:
    with pytest.raises(errors.UnsupportedError, match="reboot it by hand") as caught:
        await systemctl.reboot(Root(tmp_path))
    assert caught.value.reason == "RebootUnsupported"


async def test_units_that_run_are_told_stopped_and_started(tmp_path: Path) -> None:
    host = Systemctl(tmp_path, dcgm="active", nvsm="failed", x="activating")
    running = await systemctl.running(Root(tmp_path), UNITS)
    assert running == ("dcgm.service", "x.service")
    await systemctl.stop(Root(tmp_path), running)
    assert await systemctl.running(Root(tmp_path), UNITS) == ()
    await systemctl.start(Root(tmp_path), running)
    assert await systemctl.running(Root(tmp_path), UNITS) == running
    assert host.state("nvsm.service") == "failed"


async def test_a_unit_that_does_not_obey_is_named(tmp_path: Path) -> None:
    Systemctl(tmp_path, dcgm="active").stick("dcgm.service")
    with pytest.raises(errors.UnavailableError, match="Job for dcgm") as caught:
        await systemctl.stop(Root(tmp_path), ["dcgm.service"])
    assert caught.value.reason == "UnitNotStopped"
    with pytest.raises(errors.UnavailableError, match=r"start gone\.service: .* not found"):
        await systemctl.start(Root(tmp_path), ["gone.service"])


async def test_a_host_with_another_init_system_runs_no_units(tmp_path: Path) -> None:
    assert await systemctl.running(Root(tmp_path), UNITS) == ()
    Systemctl(tmp_path, dcgm="active")
    (tmp_path / "run/systemd/system").rmdir()
    assert await systemctl.running(Root(tmp_path), UNITS) == ()


async def test_an_init_system_that_does_not_answer_is_no_word_of_its_units(tmp_path: Path) -> None:
    Systemctl(tmp_path)
    (tmp_path / "usr/bin/systemctl").write_bytes(b"")
    with pytest.raises(errors.GpudeckError):
        await systemctl.running(Root(tmp_path), UNITS)
