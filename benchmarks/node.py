# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.node [--only PART]...`: the programs of a node in device plugin mode.

On one simulated host with eight cards, without a cluster (`hosts`). As root: device nodes are
made. What a kubelet and an API server add is not in these figures; those of the peers, which
were taken with the real ones, have a fraction of a millisecond of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import grpc

from benchmarks import hosts, processes, writing
from benchmarks.figures import Figure, percentile, signed, started
from gpudeck.api import resources
from gpudeck.kubelet import deviceplugins
from gpudeck.kubelet.wire import deviceplugin_pb2 as pb

CALLS, WARM_CALLS = 300, 50
ROUNDS, FEW = 6, 3
IDLE_SECONDS, SETTLED_SECONDS = 60.0, 5.0
START, CALLS_GROUP = "Device plugin mode: start and changes", "Device plugin mode: calls, ms"
MEMORY = "Device plugin mode: memory and idle CPU"
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
SMALL = "nvidia.com/mig-1g.10gb"
NODE_FEATURE = "gpu/nvidia-features-for-node-0"


async def starts(host: hosts.Host) -> list[Figure]:
    """The device plugin from its last config on disk, with the API server there and away."""
    values: dict[str, list[float]] = {}
    for name, kubeconfig in (("start", host.kubeconfig), ("start_away", _nobody(host))):
        for number in range(ROUNDS + 1):
            async with host.running("device-plugin", **host.plugin() | {"kubeconfig": kubeconfig}):
                pass
            await hosts.moment(lambda: not host.kubelet.allocatable(GPU))
            options = host.plugin() | {"kubeconfig": kubeconfig}
            async with host.running("device-plugin", **options) as program:
                seen = await host.offers(GPU, hosts.CARDS)
                await hosts.moment((host.folder / "data/device-plugin.json").exists)
                if number:  # The first one makes the file of its config.
                    values.setdefault(name, []).append(seen - program.started)
    about = f"exec to {hosts.CARDS} cards in the kubelet's list, config from disk"
    return [
        _figure("dp_start", START, f"device-plugin: {about}", "s", values["start"]),
        _figure(
            "dp_start_away",
            START,
            f"device-plugin: {about}, API server away",
            "s",
            values["start_away"],
        ),
    ]


def _nobody(host: hosts.Host) -> Path:
    """A kubeconfig of an API server that does not answer."""
    path = host.folder / "nobody"
    text = Path(host.kubeconfig).read_text()
    path.write_text(text.replace(host.api.url, "http://127.0.0.1:9"))
    return path


async def changes(host: hosts.Host) -> list[Figure]:
    """Label to list; partitions to list and to labels."""
    labelled, partitioned, told = [], [], []
    async with host.running("device-plugin", **host.plugin()):
        await host.offers(GPU, hosts.CARDS)
        for _ in range(ROUNDS):
            for config, name, count in ((hosts.SHARED, SHARED, 80), ("", GPU, hosts.CARDS)):
                begin = time.perf_counter()
                host.choose(config)
                seen = await host.offers(name, count)
                labelled.append(seen - begin)
    options = host.plugin() | {"mig-strategy": "mixed"}
    async with (
        host.running("device-plugin", **options),
        host.running("gfd", **{"mig-strategy": "mixed"}),
    ):
        await host.offers(GPU, hosts.CARDS)
        await hosts.moment(lambda: _labels(host))
        for _ in range(FEW):
            host.bench.enable_partitions(0)
            await host.offers(GPU, hosts.CARDS - 1)
            begin = time.perf_counter()
            host.bench.partition(0, "19,19,19")
            seen, labels = await asyncio.gather(
                host.offers(SMALL, 3),
                hosts.moment(lambda: _labels(host).get(f"{SMALL}.count") == "3"),
            )
            partitioned.append(seen - begin)
            told.append(labels - begin)
            host.bench.unpartition(0)
            host.bench.disable_partitions(0)
            await host.offers(GPU, hosts.CARDS)
            await hosts.moment(lambda: f"{SMALL}.count" not in _labels(host))
    made = "three partitions made by another program"
    return [
        _figure("dp_label", START, "node label to new devices sent to the kubelet", "s", labelled),
        _figure("dp_mig", START, f"{made} to new devices sent to the kubelet", "s", partitioned),
        _figure("gfd_mig", START, f"{made} to the NodeFeature of gfd", "s", told),
    ]


def _labels(host: hosts.Host) -> dict[str, str]:
    found = host.api.objects(resources.NODE_FEATURE).get(NODE_FEATURE)
    labels: dict[str, str] = found["spec"]["labels"] if found is not None else {}
    return labels


async def calls(host: hosts.Host) -> list[Figure]:
    """Allocate and GetPreferredAllocation, by a client on the plugin's own socket."""
    rounds: list[dict[str, list[float]]] = []
    for _ in range(FEW):
        times: dict[str, list[float]] = {}
        async with host.running("device-plugin", **host.plugin()):
            for config, name, count in (("", GPU, hosts.CARDS), (hosts.SHARED, SHARED, 80)):
                host.choose(config)
                await host.offers(name, count)
                ids = sorted(host.kubelet.devices(name) or {})
                socket = host.plugins / f"nvidia-{name.removeprefix('nvidia.com/')}.sock"
                times |= await asyncio.to_thread(_called, socket, ids)
            host.choose("")
        rounds.append(times)
    return [
        _figure(
            f"dp_{key}_p{share * 100:.0f}",
            CALLS_GROUP,
            f"{key.replace('_', ' ')}, p{share * 100:.0f}",
            "ms",
            [percentile(each[key], share) for each in rounds],
        )
        for key in rounds[0]
        for share in (0.5, 0.99)
    ]


def _called(socket: Path, ids: list[str]) -> dict[str, list[float]]:
    """Milliseconds of each call, one after the other over one connection."""
    authority = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix:{socket}", options=authority) as channel:

        def method(name: str, answer: Any) -> Callable[[Any], Any]:
            found: Any = channel.unary_unary(
                f"/{deviceplugins.SERVICE}/{name}",
                request_serializer=lambda request: request.SerializeToString(),
                response_deserializer=answer.FromString,
            )
            return lambda request: found(request, timeout=10)

        options = method("GetDevicePluginOptions", pb.DevicePluginOptions)
        allocate = method("Allocate", pb.AllocateResponse)
        prefer = method("GetPreferredAllocation", pb.PreferredAllocationResponse)
        for _ in range(WARM_CALLS):
            options(pb.Empty())
        found = {}
        if len(ids) == hosts.CARDS:
            found["GetDevicePluginOptions"] = _timed(options, pb.Empty())
        for size in (1, 8):
            found[f"Allocate_{size}_of_{len(ids)}"] = _timed(allocate, _wanted(ids[:size]))
        for size in (1, 2, 4, 8):
            key = f"GetPreferredAllocation_{size}_of_{len(ids)}"
            found[key] = _timed(prefer, _asked(ids, size))
        return found


def _timed(call: Callable[[Any], Any], request: Any) -> list[float]:
    times = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        call(request)
        times.append((time.perf_counter() - begin) * 1000)
    return times


def _wanted(ids: Sequence[str]) -> pb.AllocateRequest:
    return pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])


def _asked(ids: Sequence[str], size: int) -> pb.PreferredAllocationRequest:
    one = pb.ContainerPreferredAllocationRequest(available_deviceIDs=ids, allocation_size=size)
    return pb.PreferredAllocationRequest(container_requests=[one])


async def passes(host: hosts.Host) -> list[Figure]:
    """One pass of gfd as a program, and changes of all cards' partitions by `gpudeck mig`."""
    to_file, to_api = [], []
    for number in range(ROUNDS):
        options = {"oneshot": "true", "no-timestamp": "true"}
        labels = host.bench.tree / "etc/kubernetes/node-feature-discovery/features.d/gfd"
        labels.unlink(missing_ok=True)
        file = {**options, "use-node-feature-api": "false"}
        async with host.running("gfd", **file) as program:
            to_file.append(await program.ended())
        if number:
            host.api.remove(resources.NODE_FEATURE, NODE_FEATURE)
        async with host.running("gfd", **options) as program:
            to_api.append(await program.ended())
    return [
        _figure("gfd_file", START, "gfd --oneshot to a file", "s", to_file),
        _figure("gfd_api", START, "gfd --oneshot to a NodeFeature", "s", to_api),
    ]


async def partitions(host: hosts.Host) -> list[Figure]:
    """`gpudeck mig apply`: 56 partitions on eight cards, another layout, and none again."""
    (host.bench.tree / "run").mkdir(exist_ok=True)
    steps = (
        ("mig_all", "apply", "all-1g.10gb", "all disabled to 7x1g.10gb on 8 cards, 56 partitions"),
        ("mig_same", "apply", "all-1g.10gb", "nothing to change"),
        ("mig_assert", "assert", "all-1g.10gb", "matching"),
        ("mig_other", "apply", "all-balanced", "7x1g to 2x1g, 2g, 3g"),
        ("mig_none", "apply", "all-disabled", "balanced to disabled"),
    )
    values: dict[str, list[float]] = {}
    for _ in range(FEW):
        for key, verb, config, _what in steps:
            program = hosts.Program()
            await program.start("mig", verb, "-c", config, **{"host-root": host.bench.tree})
            values.setdefault(key, []).append(await program.ended())
    return [
        _figure(key, START, f"gpudeck mig {verb}, {what}", "s", values[key])
        for key, verb, _, what in steps
    ]


async def footprint(host: hosts.Host) -> list[Figure]:
    """What the programs take while nothing happens: those of a node at once, the others alone."""
    of_cluster = {"node-name": None, "host-root": None}
    groups: tuple[dict[str, dict[str, Any]], ...] = (
        {
            "device-plugin": host.plugin(),
            "gfd": {},
            "features worker": {},
            "mig-manager": {"pod-resources": host.kubelet.pod_resources},
        },
        {"features master": of_cluster},
        {"features gc": of_cluster},
    )
    found: list[Figure] = []
    for group in groups:
        async with contextlib.AsyncExitStack() as stack:
            programs = {
                name: await stack.enter_async_context(host.running(*name.split(), **options))
                for name, options in group.items()
            }
            await asyncio.sleep(SETTLED_SECONDS)
            before = {name: hosts.sizes(program) for name, program in programs.items()}
            await asyncio.sleep(IDLE_SECONDS)
            after = {name: hosts.sizes(program) for name, program in programs.items()}
            once = processes.together(
                [pid for each in programs.values() for pid in (each.pid, *each.children)]
            )
        for name in group:
            if len(before[name]) > 1:
                found += _sizes(f"{name} alone", before[name][:1], after[name][:1])
                found += _sizes(f"{name}, its library process", before[name][1:], after[name][1:])
            found += _sizes(name, before[name], after[name])
        if len(group) > 1:
            of_all = (list(itertools.chain(*when.values())) for when in (before, after))
            found += _sizes("all of one node", *of_all)
            about = "all of one node: memory, each page once"
            found.append(_figure("dp_all_of_one_node_once", MEMORY, about, "MB", [once]))
    return found


def _sizes(
    name: str, each_before: list[processes.Size], each_after: list[processes.Size]
) -> Iterator[Figure]:
    before, after = processes.summed(each_before), processes.summed(each_after)
    key = name.replace(", ", "_").replace(" ", "_")
    for what, unit, value in (
        ("PSS", "MB", after.pss),
        ("anonymous memory", "MB", after.anonymous),
        ("CPU s in 60 idle s", "s", after.cpu_seconds - before.cpu_seconds),
    ):
        word = what.split()[0].lower()
        yield _figure(f"dp_{key}_{word}", MEMORY, f"{name}: {what}", unit, [value])


def _figure(key: str, group: str, what: str, unit: str, values: list[float]) -> Figure:
    return Figure(key=key, group=group, what=what, unit=unit, values=values)


PARTS: dict[str, Callable[[hosts.Host], Awaitable[list[Figure]]]] = {
    "starts": starts,
    "changes": changes,
    "calls": calls,
    "passes": passes,
    "partitions": partitions,
    "footprint": footprint,
}


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(PARTS)), help="Only this.")
@click.option("--record/--no-record", default=True, help="Write results.json and README.md.")
def main(only: Sequence[str], record: bool) -> None:
    """Measure the programs of a node in device plugin mode."""
    for part in only or PARTS:
        before = started()
        found = hosts.run(PARTS[part])
        command = f"python -m benchmarks.node --only {part}"
        writing.tell(signed(found, command, before), record=record)


if __name__ == "__main__":
    main()
