# SPDX-License-Identifier: Apache-2.0
"""A process sees a card exactly when it can open the card's device node."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from typing import Any

import pynvml as n
import pytest
from tests.native import hosts

pytestmark = pytest.mark.skipif(hosts.REAL, reason="about the simulation alone")
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes")


def uuids() -> list[str]:
    handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
    return [n.nvmlDeviceGetUUID(handle)[4:12] for handle in handles]


def test_a_container_with_the_second_card_counts_it_as_the_first(
    h100: hosts.Host, initialise: Any
) -> None:
    (h100.devices / "nvidia0").unlink()
    initialise(h100)
    assert uuids() == ["a0b0c0d1"]
    card = n.nvmlDeviceGetHandleByIndex(0)
    assert (n.nvmlDeviceGetIndex(card), n.nvmlDeviceGetMinorNumber(card)) == (0, 1)
    with pytest.raises(n.NVMLError_NotFound):
        n.nvmlDeviceGetHandleByUUID("GPU-a0b0c0d0-1111-4222-8333-444455556660")


def test_the_list_of_cards_is_made_at_the_first_initialisation(
    h100: hosts.Host, initialise: Any
) -> None:
    (h100.devices / "nvidia1").unlink()
    assert n.nvmlDeviceGetCount() == 2
    n.nvmlInit()
    assert n.nvmlDeviceGetCount() == 2
    initialise(h100)
    assert n.nvmlDeviceGetCount() == 1


@root_only
def test_a_node_without_a_driver_is_a_card(h100: hosts.Host, initialise: Any) -> None:
    (h100.devices / "nvidia0").unlink()
    os.mknod(h100.devices / "nvidia0", 0o666 | stat.S_IFCHR, os.makedev(195, 0))
    initialise(h100)
    assert n.nvmlDeviceGetCount() == 2


@root_only
def test_a_node_that_may_not_be_opened_is_no_card(h100: hosts.Host, initialise: Any) -> None:
    program = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount())"
    (h100.devices / "nvidia0").chmod(0)
    words = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", program]
    os.chown(h100.devices / "nvidia0", 12345, 12345)
    done = subprocess.run(
        words, env=h100.environment(), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "1\n", done.stderr


def test_without_nvidiactl_the_driver_is_not_loaded(h100: hosts.Host, initialise: Any) -> None:
    (h100.devices / "nvidiactl").unlink()
    with pytest.raises(n.NVMLError_DriverNotLoaded):
        initialise(h100)


def test_without_a_simulated_host_the_driver_is_not_loaded(
    h100: hosts.Host, initialise: Any
) -> None:
    (h100.folder / "state").unlink()
    with pytest.raises(n.NVMLError_DriverNotLoaded):
        initialise(h100)


def test_a_host_without_visible_cards_has_none(h100: hosts.Host, initialise: Any) -> None:
    for index in (0, 1):
        (h100.devices / f"nvidia{index}").unlink()
    initialise(h100)
    assert n.nvmlDeviceGetCount() == 0


def test_versions_that_do_not_fit_stop_the_initialisation(
    h100: hosts.Host, initialise: Any
) -> None:
    h100.simctl("host", "init=18", "driver=581.10.01")
    with pytest.raises(n.NVMLError_LibRmVersionMismatch):
        initialise(h100)
    h100.simctl("host", "init=0")
    initialise(h100)
    assert n.nvmlSystemGetDriverVersion() == "581.10.01"


def test_a_new_host_in_the_same_folder_is_seen_at_the_next_initialisation(
    h100: hosts.Host, initialise: Any
) -> None:
    h100.simctl("create", input=hosts.description("t4-x1"))
    assert n.nvmlDeviceGetName(n.nvmlDeviceGetHandleByIndex(0)) == "NVIDIA H100 80GB HBM3"
    initialise(h100)
    assert n.nvmlDeviceGetName(n.nvmlDeviceGetHandleByIndex(0)) == "Tesla T4"


def test_an_excluded_card_is_listed_apart(h100: hosts.Host, initialise: Any) -> None:
    h100.set(1, "excluded=1")
    initialise(h100)
    assert uuids() == ["a0b0c0d0"]
    assert n.nvmlGetExcludedDeviceCount() == 1
    assert n.nvmlGetExcludedDeviceInfoByIndex(0).uuid.startswith("GPU-a0b0c0d1")


def test_a_binding_driver_is_a_system_event(h100: hosts.Host) -> None:
    created = n.nvmlSystemEventSetCreate(n.nvmlSystemEventSetCreateRequest_v1)
    both = n.nvmlSystemEventTypeGpuDriverBind | n.nvmlSystemEventTypeGpuDriverUnbind
    n.nvmlSystemRegisterEvents(n.nvmlSystemRegisterEventRequest_v1, both, created)
    h100.set(0, "unbind=1", "bind=1")
    room = (n.c_nvmlSystemEventData_v1_t * 4)()
    got = n.nvmlSystemEventSetWait(n.nvmlSystemEventSetWaitRequest_v1, created, 1000, room, 4)
    assert [(event["eventType"], event["gpuId"]) for event in got] == [(1, 0x1B00), (2, 0x1B00)]
