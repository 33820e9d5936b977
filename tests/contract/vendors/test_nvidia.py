# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's side of the contract, on the mock NVML: models, faults, files."""

import os
import stat
import subprocess
from pathlib import Path

import pytest
from tests.contract.vendors import benches
from tests.contract.vendors.conftest import Library

from gpudeck import errors
from gpudeck.lab import machine
from gpudeck.vendors import calling, contract, registry
from gpudeck.vendors.nvidia import driver

MODELS = [name for name in machine.names() if machine.load(name).maker == "nvidia"]


def nvidia_vendor(bench: benches.NvidiaBench) -> contract.Vendor:
    return registry.load("nvidia").vendor(bench.settings)


async def read_all(bench: benches.NvidiaBench) -> list[contract.CardReading]:
    """Read every card of a host in a process of its own."""
    process = await calling.Program(vendor="nvidia", settings=bench.settings).start(
        lambda events: None, lambda: None
    )
    try:
        assert (await process.open(deadline_seconds=20)).ready
        return [
            await process.read(site.address, deadline_seconds=20)
            for site in nvidia_vendor(bench).sites()
        ]
    finally:
        await process.kill()


@pytest.mark.parametrize("name", MODELS)
async def test_every_model_is_read_without_a_fault(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("device nodes of the simulated host can be made by root only")
    bench = benches.NvidiaBench(tmp_path, monkeypatch, name)
    for reading, card in zip(await read_all(bench), bench.machine.cards, strict=True):
        model = bench.machine.model_of(card)
        assert (reading.address, reading.uuid) == (card.address, card.uuid)
        assert reading.product_name == model.name
        assert reading.architecture.lower() == model.architecture
        assert reading.compute_capability == model.compute_capability
        assert reading.faults == ()
        mib = model.memory.total_mib if model.memory else None
        assert reading.memory_bytes == (mib << 20 if mib else None)  # case-13: never made up.
        if model.mig is None:
            assert (reading.mode, reading.profiles) == ("NotAvailable", ())
        else:
            assert reading.mode == "Disabled"
            told = {(each.name, each.profile_id) for each in reading.profiles}  # case-29
            assert told == {(each.name, each.id) for each in model.mig.profiles}
            assert reading.total_slices == model.mig.compute_slices


async def test_the_state_of_the_driver_has_a_reason(
    nvidia: benches.NvidiaBench, nvml: Library
) -> None:
    nvidia.turn_host("init=18")
    state = await nvml.open()
    assert (state.ready, state.reason) == (False, "DriverLibraryVersionMismatch")
    assert "reboot the node" in state.message


async def test_a_node_without_the_library_says_where_it_was_looked_for(
    nvidia: benches.NvidiaBench, nvml: Library
) -> None:
    (nvidia.tree / nvidia.libraries / "libnvidia-ml.so.1").unlink()
    state = await nvml.open()
    assert (state.ready, state.reason) == (False, "DriverLibraryNotFound")
    assert "/usr/lib/x86_64-linux-gnu" in state.message


async def test_a_file_that_is_no_library_is_named(
    nvidia: benches.NvidiaBench, nvml: Library
) -> None:
    path = nvidia.tree / nvidia.libraries / "libnvidia-ml.so.1"
    path.unlink()
    path.write_bytes(b"not a library")
    state = await nvml.open()
    assert (state.ready, state.reason) == (False, "DriverLibraryUnusable")


async def test_a_library_behind_debians_alternatives_is_loaded_from_the_host(
    nvidia: benches.NvidiaBench, nvml: Library
) -> None:
    link = nvidia.tree / nvidia.libraries / "libnvidia-ml.so.1"
    target = link.readlink()
    alternatives = nvidia.tree / "etc/alternatives"
    alternatives.mkdir(parents=True, exist_ok=True)
    link.unlink()
    link.symlink_to("/etc/alternatives/libnvidia-ml.so.1")
    (alternatives / "libnvidia-ml.so.1").symlink_to(f"/{nvidia.libraries}/{target}")
    assert (await nvml.open()).ready


async def test_a_card_without_events_is_no_fault_and_one_whose_events_fail_is(
    nvidia: benches.NvidiaBench, nvml: Library
) -> None:
    """case-08."""
    first, second = (site.address for site in nvidia_vendor(nvidia).sites())
    nvidia.turn(0, "fail.nvmlDeviceRegisterEvents=3")
    await nvml.open()
    assert (await nvml.read(first)).faults == ()
    assert (await nvml.read(second)).faults == ()
    event = await nvml.event_of(nvidia.raise_hardware_error(1))
    assert event.address == second


async def test_a_registration_that_fails_does_not_end_the_others_events(
    nvidia: benches.NvidiaBench, nvml: Library
) -> None:
    """case-08: the loop keeps running for the other card."""
    first, second = (site.address for site in nvidia_vendor(nvidia).sites())
    nvidia.turn(1, "fail.nvmlDeviceRegisterEvents=999")
    await nvml.open()
    assert (await nvml.read(first)).faults == ()
    (fault,) = (await nvml.read(second)).faults
    assert fault.reason == "EventsNotWatched"
    assert "nvmlDeviceRegisterEvents answers Unknown Error (999)" in fault.message
    event = await nvml.event_of(nvidia.raise_hardware_error(0))
    assert event.address == first


async def test_a_failing_query_names_itself(nvidia: benches.NvidiaBench, nvml: Library) -> None:
    first, second = (site.address for site in nvidia_vendor(nvidia).sites())
    await nvml.open()
    nvidia.turn(0, "fail.nvmlDeviceGetTotalEccErrors=999")
    (fault,) = (await nvml.read(first)).faults
    assert fault.reason == "NVMLQueryFailed"
    assert "nvmlDeviceGetTotalEccErrors answers Unknown Error (999)" in fault.message
    nvidia.turn(1, "fail=999")
    with pytest.raises(errors.UnavailableError) as caught:
        await nvml.read(second)
    assert caught.value.reason == "NVMLQueryFailed"


@pytest.mark.parametrize(
    ("knob", "reason"),
    [
        ("ecc.uncorrected.volatile.memory=2", "UncorrectableEcc"),
        ("remap-failure=1", "RowRemapFailure"),
        ("recovery-action=1", "RecoveryActionRequired"),
        ("temperature=120", "Overheated"),
        ("thermal=64", "ThermalSlowdown"),
    ],
)
async def test_what_the_queries_show_is_a_fault(
    nvidia: benches.NvidiaBench, nvml: Library, knob: str, reason: str
) -> None:
    address = nvidia_vendor(nvidia).sites()[0].address
    nvidia.turn(0, knob)
    await nvml.open()
    assert reason in [fault.reason for fault in (await nvml.read(address)).faults]


async def test_the_lifetime_grows_while_the_card_is_up(
    nvidia: benches.NvidiaBench, nvml: Library
) -> None:
    address = nvidia_vendor(nvidia).sites()[0].address
    await nvml.open()
    before = (await nvml.read(address)).lifetime
    nvidia.turn(0, "power-mw=400000")
    after = (await nvml.read(address)).lifetime
    assert before is not None
    assert after is not None
    assert after >= before


async def test_partitions_are_told_by_the_drivers_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = benches.make("nvidia-on-mock", tmp_path, monkeypatch)
    assert isinstance(bench, benches.NvidiaBench)
    bench.turn(0, "mig-mode=1")
    bench.partition(0, "2g.12gb,1g.6gb")
    reading = (await read_all(bench))[0]
    assert reading.mode is contract.PartitioningMode.ENABLED
    assert sorted(each.profile for each in reading.partitions) == ["1g.6gb", "2g.12gb"]
    assert all(each.uuid.startswith("MIG-") for each in reading.partitions)
    assert sorted(each.size for each in reading.partitions) == [1, 2]


async def test_partitions_have_the_drivers_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It numbers by instance: the large one is 0, wherever it lies."""
    bench = benches.make("nvidia-on-mock", tmp_path, monkeypatch)
    assert isinstance(bench, benches.NvidiaBench)
    bench.turn(0, "mig-mode=1")
    bench.partition(0, "1g.6gb,1g.6gb,2g.12gb")
    reading = (await read_all(bench))[0]
    uuids = {each.driver_id: each.uuid for each in reading.partitions}
    by_instance = sorted(uuids, key=lambda each: int(each.partition("/")[0]))
    numbers = [each for each in reading.partition_numbers if each]
    assert numbers == [uuids[each] for each in by_instance]
    assert numbers != [each.uuid for each in reading.partitions]


async def test_a_card_bound_to_another_driver_is_not_served(nvidia: benches.NvidiaBench) -> None:
    address = nvidia.machine.cards[0].address
    link = nvidia.tree / "sys/bus/pci/devices" / address / "driver"
    link.unlink()
    link.symlink_to("../../../../bus/pci/drivers/vfio-pci")
    first, second = nvidia_vendor(nvidia).sites()
    assert (first.served, first.driver) == (False, "vfio-pci")
    assert second.served


async def test_an_unreadable_device_hides_no_other(nvidia: benches.NvidiaBench) -> None:
    address = nvidia.machine.cards[0].address
    path = (nvidia.tree / "sys/bus/pci/devices" / address).resolve() / "device"
    path.unlink()
    sites = nvidia_vendor(nvidia).sites()
    assert [site.address for site in sites] == [nvidia.machine.cards[1].address]


async def test_a_container_gets_nodes_files_links_and_cache(nvidia: benches.NvidiaBench) -> None:
    version = nvidia.machine.driver.version
    os.chown(nvidia.tree / "dev/dri/renderD128", 0, 105)
    card = (await read_all(nvidia))[0]
    given = nvidia_vendor(nvidia).inject(
        [contract.Use(card=card)], driver_version=version, hook_path="/opt/hook"
    )
    shared, own = given.shared, given.uses[0].edits
    assert shared.env == ("NVIDIA_VISIBLE_DEVICES=void",)
    nodes = {node.path: node for node in (*shared.device_nodes, *own.device_nodes)}
    assert nodes["/dev/nvidia0"].host_path == "/mnt/host/dev/nvidia0"
    assert (nodes["/dev/nvidia0"].major, nodes["/dev/nvidia0"].minor) == (195, 0)
    assert nodes["/dev/nvidiactl"].minor == 255
    assert {"/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"} <= set(nodes)
    assert "/dev/dri/renderD128" in nodes
    assert own.additional_gids == (105,)
    mounts = {mount.container_path: mount for mount in shared.mounts}
    library = f"/{nvidia.libraries}/libcuda.so.{version}"
    assert mounts[library].host_path == f"/mnt/host{library}"
    assert "ro" in mounts[library].options
    assert "/usr/bin/nvidia-smi" in mounts
    links, compat, cache, protect = (hook.args for hook in shared.hooks)
    assert links[:2] == ("nvidia-cdi-hook", "create-symlinks")
    assert f"libcuda.so.{version}::/{nvidia.libraries}/libcuda.so.1" in links
    assert cache[:2] == ("nvidia-cdi-hook", "update-ldcache")
    assert f"/{nvidia.libraries}" in cache
    assert f"../libnvidia-allocator.so.1::/{nvidia.libraries}/gbm/nvidia-drm_gbm.so" in links
    assert compat[1:] == ("enable-cuda-compat", f"--host-driver-version={version}")
    assert protect[1:] == ("disable-device-node-modification",)
    assert {hook.path for hook in (*shared.hooks, *own.hooks)} == {"/opt/hook"}


async def test_without_hooks_the_links_are_mounted_as_files(nvidia: benches.NvidiaBench) -> None:
    version = nvidia.machine.driver.version
    given = nvidia_vendor(nvidia).inject([], driver_version=version, hook_path="")
    mounts = {mount.container_path: mount.host_path for mount in given.shared.mounts}
    assert (
        mounts[f"/{nvidia.libraries}/libcuda.so.1"]
        == f"/mnt/host/{nvidia.libraries}/libcuda.so.{version}"
    )


async def test_a_driver_that_changes_is_seen_at_the_next_prepare(
    nvidia: benches.NvidiaBench,
) -> None:
    version = nvidia.machine.driver.version
    vendor = nvidia_vendor(nvidia)
    before = vendor.inject([], driver_version=version, hook_path="").shared.mounts
    (nvidia.tree / nvidia.libraries / f"libnvidia-new.so.{version}").write_bytes(b"\x7fELF")
    after = vendor.inject([], driver_version=version, hook_path="").shared.mounts
    assert len(after) == len(before) + 1


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("dev/nvidia-uvm", "DeviceNodeMissing"),
        ("dev/nvidiactl", "DeviceNodeMissing"),
        ("dev/nvidia0", "DeviceNodeMissing"),
        ("LIBRARIES/libcuda.so.VERSION", "DriverFilesMissing"),
    ],
)
async def test_what_is_missing_on_the_node_is_named(
    nvidia: benches.NvidiaBench, missing: str, reason: str
) -> None:
    version = nvidia.machine.driver.version
    card = (await read_all(nvidia))[0]
    path = missing.replace("VERSION", version).replace("LIBRARIES", nvidia.libraries)
    (nvidia.tree / path).unlink()
    with pytest.raises(errors.UnavailableError) as caught:
        nvidia_vendor(nvidia).inject(
            [contract.Use(card=card)], driver_version=version, hook_path=""
        )
    assert caught.value.reason == reason
    assert path.rpartition("/")[2] in caught.value.message


def test_only_graphics_and_compute_functions_are_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An HGX host has NVSwitches (class 0680) of the same maker."""
    if os.geteuid() != 0:
        pytest.skip("device nodes of the simulated host can be made by root only")
    bench = benches.NvidiaBench(tmp_path, monkeypatch, "h100-x8")
    assert isinstance(nvidia_vendor(bench), driver.NvidiaVendor)
    assert [site.address for site in nvidia_vendor(bench).sites()] == [
        card.address for card in bench.machine.cards
    ]


@pytest.fixture
def hopper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> benches.NvidiaBench:
    made = benches.make_partitionable("nvidia-on-mock", tmp_path, monkeypatch)
    assert isinstance(made, benches.NvidiaBench)
    return made


async def act(
    bench: benches.NvidiaBench, *actions: contract.Action
) -> list[contract.Partition | None]:
    """Act on the first card in a process of its own."""
    process = await calling.Program(vendor="nvidia", settings=bench.settings).start(
        lambda events: None, lambda: None
    )
    try:
        assert (await process.open(deadline_seconds=20)).ready
        address = nvidia_vendor(bench).sites()[0].address
        return [await process.act(address, each, deadline_seconds=20) for each in actions]
    finally:
        await process.kill()


def list_gpus(bench: benches.NvidiaBench, dev: Path) -> str:
    """What the maker's own program finds with the device nodes in a folder."""
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(bench.artifacts),
        "GPUDECK_SIMULATION_DEV": str(dev),
    }
    return subprocess.run(
        [str(bench.artifacts / "nvidia-smi"), "-L"],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    ).stdout


async def test_the_nodes_of_a_partition_show_that_partition_and_no_other(
    hopper: benches.NvidiaBench, tmp_path: Path
) -> None:
    one, other = await act(hopper, hopper.small, hopper.beside)
    assert one is not None
    assert other is not None
    card = (await read_all(hopper))[0]
    given = nvidia_vendor(hopper).inject(
        [contract.Use(card=card, partition=other)],
        driver_version=hopper.machine.driver.version,
        hook_path="",
    )
    for node in (*given.shared.device_nodes, *given.uses[0].edits.device_nodes):
        path = tmp_path / "container" / node.path.removeprefix("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(node.major, node.minor))
    seen = list_gpus(hopper, tmp_path / "container/dev")
    assert other.uuid in seen
    assert one.uuid not in seen
    assert seen.count("GPU-") == 1


async def test_a_partition_whose_nodes_nobody_made_yet_is_given_by_number(
    hopper: benches.NvidiaBench,
) -> None:
    (made,) = await act(hopper, hopper.small)
    card = (await read_all(hopper))[0]
    gate = hopper.tree / "dev/nvidia-caps"
    before = {path.name: path.stat().st_rdev for path in gate.iterdir()}
    for path in gate.iterdir():
        path.unlink()
    given = nvidia_vendor(hopper).inject(
        [contract.Use(card=card, partition=made)],
        driver_version=hopper.machine.driver.version,
        hook_path="",
    )
    _, *gates = given.uses[0].edits.device_nodes
    assert len(gates) == 2
    for node in gates:
        name = node.path.rpartition("/")[2]
        assert os.makedev(node.major, node.minor) == before[name]
        assert node.host_path == f"/mnt/host/dev/nvidia-caps/{name}"


async def test_a_gpu_instance_left_half_made_is_told_and_finished(
    hopper: benches.NvidiaBench,
) -> None:
    """As a kill between the two steps leaves it."""
    hopper.turn(0, "mig-mode=1")
    hopper.partition(0, "19:0", compute=False)
    card = (await read_all(hopper))[0]
    (half,) = card.partitions
    assert (half.uuid, half.profile_id, half.start) == ("", 19, 0)
    (made,) = await act(hopper, hopper.small)
    assert made is not None
    assert made.uuid
    assert (await read_all(hopper))[0].partitions == (made,)


async def test_a_gpu_instance_left_half_made_can_be_removed(hopper: benches.NvidiaBench) -> None:
    hopper.turn(0, "mig-mode=1")
    hopper.partition(0, "19:0", compute=False)
    place = hopper.small.placement
    await act(hopper, contract.RemovePartition(profile_id=19, placement=place))
    assert (await read_all(hopper))[0].partitions == ()


async def test_an_instance_that_somebody_split_further_is_left_alone(
    hopper: benches.NvidiaBench,
) -> None:
    hopper.turn(0, "mig-mode=1")
    hopper.partition(0, "9:0", compute=False)
    hopper.compute_instance(0, "0")  # The profile 1c.3g.40gb.
    with pytest.raises(errors.ConflictError) as caught:
        await act(hopper, hopper.across)
    assert caught.value.reason == "PartitionSplit"
    (there,) = (await read_all(hopper))[0].partitions
    assert there.profile == "1c.3g.40gb"


async def test_ampere_keeps_its_mode_and_says_what_to_do(nvidia: benches.NvidiaBench) -> None:
    """Its mode changes by a reset, which is the administrator's to choose."""
    assert not (await read_all(nvidia))[0].dynamic
    profile = next(each for each in (await read_all(nvidia))[0].profiles if each.slices == 1)
    wanted = contract.MakePartition(profile_id=profile.profile_id, placement=profile.placements[0])
    with pytest.raises(errors.UnsupportedError) as caught:
        await act(nvidia, wanted)
    assert caught.value.reason == "PartitioningNeedsReset"
    assert "label gpu.deckhouse.io/mig-mode" in caught.value.message
    nvidia.turn(0, "mig-mode=1")
    (made,) = await act(nvidia, wanted)
    assert (await read_all(nvidia))[0].partitions == (made,)


async def test_a_mode_that_the_driver_refuses_is_not_left_wanted(
    hopper: benches.NvidiaBench,
) -> None:
    hopper.work(0)
    with pytest.raises(errors.BusyError):
        await act(hopper, contract.SetPartitioning(enabled=True))
    hopper.rest(0)
    hopper.turn(0, "reset=1")  # A mode that is still wanted comes with the next reset.
    assert (await read_all(hopper))[0].mode is contract.PartitioningMode.DISABLED


async def test_a_card_that_comes_back_to_the_bus_has_no_partitions(
    hopper: benches.NvidiaBench,
) -> None:
    """So the claim whose Unprepare met the lost card owed nothing."""
    await act(hopper, hopper.small)
    hopper.lose(0)
    hopper.find(0)
    assert (await read_all(hopper))[0].partitions == ()


@pytest.mark.parametrize("name", ["h100-x8", "v100-x8", "t4-x4"])
async def test_links_lead_to_switches_or_from_card_to_card(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("device nodes of the simulated host can be made by root only")
    bench = benches.NvidiaBench(tmp_path, monkeypatch, name)
    cards, topology = bench.machine.cards, bench.machine.nvlink
    for number, reading in enumerate(await read_all(bench)):
        expected = {
            (cards[pair.end if pair.start == number else pair.start].address, pair.links)
            for pair in topology.pairs
            if number in (pair.start, pair.end)
        }
        if topology.has_switches:
            expected = {("", 18)}
        assert {(link.peer, link.count) for link in reading.links} == expected


async def test_an_event_of_a_partition_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("device nodes of the simulated host can be made by root only")
    bench = benches.NvidiaBench(tmp_path, monkeypatch, "h100-x8")
    bench.enable_partitions(0)
    bench.partition(0, "19,19")
    address = bench.machine.cards[0].address
    told = Library()
    program = calling.Program(vendor="nvidia", settings=bench.settings)
    told.process = await program.start(told.take, lambda: None)
    try:
        await told.open()
        first, second = (await told.read(address)).partitions
        bench.turn(0, f"xid=94:{second.driver_id.replace('/', ':')}")
        event = await told.event_of(94)
        assert (event.address, event.instance) == (address, second.driver_id)
        instance = first.driver_id.partition("/")[0]
        bench.turn(0, f"xid=95:{instance}")
        assert (await told.event_of(95)).instance == f"{instance}/"
        bench.turn(0, "xid=119")
        assert (await told.event_of(119)).instance == ""
    finally:
        await told.process.kill()
