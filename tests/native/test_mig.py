# SPDX-License-Identifier: Apache-2.0
"""MIG: what may stand beside what, where the driver puts it, and who sees it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pynvml as n
import pytest
from tests.native import hosts

pytestmark = [
    pytest.mark.skipif(hosts.REAL, reason="about the simulation alone"),
    pytest.mark.skipif(os.geteuid() != 0, reason="partitions need an administrator"),
]
FULL_CI = {19: 0, 20: 0, 15: 0, 14: 1, 9: 2, 5: 3, 0: 4}


@pytest.fixture
def card(h100: hosts.Host) -> Any:
    device = n.nvmlDeviceGetHandleByIndex(0)
    assert n.nvmlDeviceSetMigMode(device, n.NVML_DEVICE_MIG_ENABLE) == n.NVML_SUCCESS
    return device


def create(card: Any, profile: int, start: int | None = None, size: int = 0) -> Any:
    if start is None:
        return n.nvmlDeviceCreateGpuInstance(card, profile)
    place = n.c_nvmlGpuInstancePlacement_t(start, size)
    return n.nvmlDeviceCreateGpuInstanceWithPlacement(card, profile, n.byref(place))


def start_of(instance: Any) -> int:
    start: int = n.nvmlGpuInstanceGetInfo(instance).placement.start
    return start


@pytest.mark.parametrize(
    ("profiles", "ids", "starts"),
    [  # The samples of the MIG user guide.
        ([19, 14, 5], [13, 5, 1], [6, 4, 0]),
        ([9, 19, 14, 19], [2, 7, 4, 8], [4, 0, 2, 1]),
        ([14, 19, 19, 19, 19, 19], [5, 13, 7, 8, 9, 10], [4, 6, 0, 1, 2, 3]),
        ([19, 19, 14], [13, 11, 3], [6, 4, 0]),
    ],
)
def test_the_driver_places_instances_as_the_guide_shows(
    card: Any, profiles: list[int], ids: list[int], starts: list[int]
) -> None:
    infos = [n.nvmlGpuInstanceGetInfo(create(card, profile)) for profile in profiles]
    assert [info.id for info in infos] == ids
    assert [info.placement.start for info in infos] == starts


def test_the_order_of_creation_may_leave_no_room(card: Any) -> None:
    for profile in (19, 19, 14):
        create(card, profile)
    with pytest.raises(n.NVMLError_InsufficientResources):
        create(card, 9)


@pytest.mark.parametrize(
    "profiles",
    [[0], [5, 9], [5, 14, 19], [5, 19, 19, 19], [9, 9], [9, 14, 19, 19], [9, 14, 14],
     [9, 19, 19, 19, 19], [14, 14, 14, 19], [14, 19, 19, 19, 19, 19], [19] * 7, [15] * 4,
     [20, 19, 19, 19, 19, 19, 19], [15, 15, 19, 19, 19]],
)  # fmt: skip
def test_every_set_of_the_tables_fits(card: Any, profiles: list[int]) -> None:
    for profile in profiles:
        create(card, profile)


@pytest.mark.parametrize(
    ("profiles", "refused"),
    [([0], 19), ([5], 5), ([9, 9], 19), ([5, 9], 19), ([20], 20), ([19] * 7, 19), ([15] * 4, 19),
     ([14, 14, 14], 14), ([9, 14, 14], 19)],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_leaves_the_rest(
    card: Any, h100: hosts.Host, profiles: list[int], refused: int
) -> None:
    for profile in profiles:
        create(card, profile)
    before = h100.state()["instances"]
    assert n.nvmlDeviceGetGpuInstanceRemainingCapacity(card, refused) == 0
    with pytest.raises(n.NVMLError_InsufficientResources):
        create(card, refused)
    assert h100.state()["instances"] == before


def test_where_one_instance_lies_decides_what_fits_beside(card: Any) -> None:
    instance = create(card, 9, 4, 4)
    assert n.nvmlDeviceGetGpuInstanceRemainingCapacity(card, 19) == 4
    n.nvmlGpuInstanceDestroy(instance)
    create(card, 9, 0, 4)
    assert n.nvmlDeviceGetGpuInstanceRemainingCapacity(card, 19) == 3


def test_a_place_that_is_no_place_is_invalid_and_one_that_is_taken_has_no_room(card: Any) -> None:
    create(card, 14, 2, 2)
    with pytest.raises(n.NVMLError_InvalidArgument):
        create(card, 14, 1, 2)
    with pytest.raises(n.NVMLError_InvalidArgument):
        create(card, 14, 0, 3)
    with pytest.raises(n.NVMLError_InsufficientResources):
        create(card, 19, 3, 1)
    with pytest.raises(n.NVMLError_InvalidArgument):
        create(card, 77)
    assert start_of(create(card, 14, 0, 2)) == 0


def test_compute_instances_use_up_their_instance(card: Any) -> None:
    instance = create(card, 9)
    made = [n.nvmlGpuInstanceCreateComputeInstance(instance, 0) for _ in range(3)]
    assert [n.nvmlComputeInstanceGetInfo(ci).id for ci in made] == [0, 1, 2]
    with pytest.raises(n.NVMLError_InsufficientResources):
        n.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    assert n.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance, 1) == 0
    n.nvmlComputeInstanceDestroy(made[1])
    assert n.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance, 0) == 1
    with pytest.raises(n.NVMLError_InsufficientResources):
        n.nvmlGpuInstanceCreateComputeInstance(instance, 1)
    again = n.nvmlComputeInstanceGetInfo(n.nvmlGpuInstanceCreateComputeInstance(instance, 0))
    assert (again.id, again.placement.start) == (1, 1)


def test_an_instance_goes_after_its_compute_instances(card: Any) -> None:
    instance = create(card, 14)
    compute = n.nvmlGpuInstanceCreateComputeInstance(instance, 1)
    with pytest.raises(n.NVMLError_InUse):
        n.nvmlGpuInstanceDestroy(instance)
    n.nvmlComputeInstanceDestroy(compute)
    n.nvmlGpuInstanceDestroy(instance)
    with pytest.raises(n.NVMLError_NotFound):
        n.nvmlGpuInstanceGetInfo(instance)


def test_a_mig_device_is_found_by_index_uuid_and_parent(card: Any) -> None:
    instance = create(card, 9)
    n.nvmlGpuInstanceCreateComputeInstance(instance, 2)
    mig = n.nvmlDeviceGetMigDeviceHandleByIndex(card, 0)
    uuid = n.nvmlDeviceGetUUID(mig)
    assert uuid.startswith("MIG-")
    assert uuid[18] == "5"
    assert n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByUUID(uuid)) == uuid
    assert n.nvmlDeviceGetName(mig) == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    assert n.nvmlDeviceIsMigDeviceHandle(mig).value == 1
    assert (n.nvmlDeviceGetGpuInstanceId(mig), n.nvmlDeviceGetComputeInstanceId(mig)) == (2, 0)
    parent = n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
    assert n.nvmlDeviceGetIndex(parent) == 0
    attributes = n.nvmlDeviceGetAttributes(mig)
    assert (attributes.multiprocessorCount, attributes.memorySizeMB) == (60, 40448)
    assert n.nvmlDeviceGetMemoryInfo(mig).total == 40448 << 20
    with pytest.raises(n.NVMLError_NotFound):
        n.nvmlDeviceGetMigDeviceHandleByIndex(card, 1)
    with pytest.raises(n.NVMLError_InvalidArgument):
        n.nvmlDeviceGetMigDeviceHandleByIndex(card, 7)
    with pytest.raises(n.NVMLError_NotSupported):
        n.nvmlDeviceGetUtilizationRates(mig)
    with pytest.raises(n.NVMLError_NotSupported):
        n.nvmlDeviceGetUtilizationRates(card)


def test_the_same_place_has_the_same_uuid_again(card: Any) -> None:
    seen = set()
    for _ in range(2):
        instance = create(card, 19, 3, 1)
        compute = n.nvmlGpuInstanceCreateComputeInstance(instance, 0)
        seen.add(n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(card, 0)))
        n.nvmlComputeInstanceDestroy(compute)
        n.nvmlGpuInstanceDestroy(instance)
    assert len(seen) == 1


def access_files(host: hosts.Host) -> dict[str, str]:
    root = host.folder / "proc/driver/nvidia/capabilities"
    return {
        str(path.parent.relative_to(root)): path.read_text().splitlines()[0]
        for path in root.glob("gpu*/mig/**/access")
    }


def test_the_driver_s_files_show_the_instances_there_are(card: Any, h100: hosts.Host) -> None:
    instance = create(card, 9, 4, 4)
    compute = n.nvmlGpuInstanceCreateComputeInstance(instance, 2)
    assert access_files(h100) == {
        "gpu0/mig/gi2": "DeviceFileMinor: 21",
        "gpu0/mig/gi2/ci0": "DeviceFileMinor: 22",
    }
    assert {node.name for node in (h100.devices / "nvidia-caps").iterdir()} >= {
        "nvidia-cap21",
        "nvidia-cap22",
    }
    n.nvmlComputeInstanceDestroy(compute)
    n.nvmlGpuInstanceDestroy(instance)
    assert access_files(h100) == {}


def test_a_container_sees_the_devices_whose_capabilities_it_has(
    card: Any, h100: hosts.Host, initialise: Any
) -> None:
    for _ in range(2):
        n.nvmlGpuInstanceCreateComputeInstance(create(card, 19), 0)
    first, second = (
        n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(card, i)) for i in (0, 1)
    )
    caps = h100.devices / "nvidia-caps"
    hide(caps, h100.show()["cards"][0]["state"]["instances"][0]["capability"])
    initialise(h100)
    assert n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(card, 0)) == second
    with pytest.raises(n.NVMLError_NotFound):
        n.nvmlDeviceGetHandleByUUID(first)
    hide(caps, h100.show()["cards"][0]["state"]["instances"][1]["compute"][0]["capability"])
    with pytest.raises(n.NVMLError_NotFound):
        n.nvmlDeviceGetMigDeviceHandleByIndex(card, 0)
    assert n.nvmlDeviceGetCount() == 2


def hide(caps: Path, minor: int) -> None:
    (caps / f"nvidia-cap{minor}").unlink()


def test_the_mode_does_not_change_under_a_running_process(h100: hosts.Host) -> None:
    device = n.nvmlDeviceGetHandleByIndex(0)
    h100.set(0, "busy=4711:100")
    assert n.nvmlDeviceSetMigMode(device, 1) == n.NVML_ERROR_IN_USE
    assert n.nvmlDeviceGetMigMode(device) == [0, 1]
    h100.set(0, "idle=0")
    assert n.nvmlDeviceSetMigMode(device, 1) == n.NVML_SUCCESS
    create(device, 0)
    assert n.nvmlDeviceSetMigMode(device, 0) == n.NVML_ERROR_IN_USE


def test_hopper_forgets_the_mode_at_a_reboot_and_ampere_keeps_it(
    make_host: Any, initialise: Any
) -> None:
    for kept in (0, 1):
        host = make_host("h100-x2", ("mig-resetless 1", f"mig-kept-over-reboot {kept}"))
        initialise(host)
        device = n.nvmlDeviceGetHandleByIndex(0)
        n.nvmlDeviceSetMigMode(device, 1)
        n.nvmlGpuInstanceCreateComputeInstance(create(device, 0), 4)
        host.simctl("reboot")
        assert n.nvmlDeviceGetMigMode(device) == [kept, kept]
        assert host.state()["instances"] == []
        assert access_files(host) == {}


def test_where_no_reset_is_allowed_the_mode_stays_pending(make_host: Any, initialise: Any) -> None:
    host = make_host("h100-x2", ("mig-change at-once", "mig-change pending"))
    initialise(host)
    device = n.nvmlDeviceGetHandleByIndex(0)
    assert n.nvmlDeviceSetMigMode(device, 1) == n.NVML_ERROR_RESET_REQUIRED
    assert n.nvmlDeviceGetMigMode(device) == [0, 1]
    with pytest.raises(n.NVMLError_NotSupported):
        create(device, 19)
    host.set(0, "reset=1")
    assert n.nvmlDeviceGetMigMode(device) == [1, 1]


def test_a_process_on_a_partition_is_charged_there(card: Any, h100: hosts.Host) -> None:
    for profile in (9, 19):
        n.nvmlGpuInstanceCreateComputeInstance(create(card, profile), FULL_CI[profile])
    mig = n.nvmlDeviceGetMigDeviceHandleByIndex(card, 0)
    other = n.nvmlDeviceGetMigDeviceHandleByIndex(card, 1)
    wanted = {"CUDA_VISIBLE_DEVICES": n.nvmlDeviceGetUUID(mig)}
    with hosts.ended(h100.burn("-m", "20000", "60", **wanted)) as burn:
        assert "MIG 3g.40gb (UUID: MIG-" in hosts.read_until(burn, "holding 20000")
        assert n.nvmlDeviceGetMemoryInfo(mig).used > 20000 << 20
        assert n.nvmlDeviceGetMemoryInfo(other).used == 0
        (seen,) = n.nvmlDeviceGetComputeRunningProcesses(card)
        assert (seen.pid, seen.gpuInstanceId, seen.computeInstanceId) == (burn.pid, 2, 0)
        compute = n.nvmlGpuInstanceGetComputeInstanceById(
            n.nvmlDeviceGetGpuInstanceById(card, 2), 0
        )
        with pytest.raises(n.NVMLError_InUse):
            n.nvmlComputeInstanceDestroy(compute)


def test_partitions_outlive_the_process_that_made_them(card: Any, h100: hosts.Host) -> None:
    create(card, 5)
    code = """
        h = n.nvmlDeviceGetHandleByIndex(0)
        g = n.nvmlDeviceGetGpuInstanceById(h, 1)
        print(n.nvmlGpuInstanceGetInfo(g).profileId, flush=True)
    """
    with hosts.ended(h100.python(code)) as other:
        assert hosts.read_until(other, "5") == "5\n"
