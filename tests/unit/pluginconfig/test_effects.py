# SPDX-License-Identifier: Apache-2.0
"""Every field of a config changes what the kubelet, containers or labels are told, or says why not.

The world before and after a field is written is compared in the aspect that the field is about.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.deviceplugin import nodes

from gpudeck import errors
from gpudeck.deviceplugin import configuring, offering, specs, standing
from gpudeck.deviceplugin.settings import Settings
from gpudeck.gfd import labelling, options
from gpudeck.gfd.settings import Settings as GfdSettings
from gpudeck.host.root import Root
from gpudeck.kubelet.wire import deviceplugin_pb2 as pb
from gpudeck.pluginconfig import model, reading
from gpudeck.pluginconfig import settings as configured
from gpudeck.vendors import contract
from gpudeck.vendors.simulated.cards import SimulatedVendor

CARDS = (nodes.card(0, compute_capability="8.0"), nodes.card(1, profiles=("1g.5gb", "1g.5gb")))
SETTINGS = Settings()


@dataclasses.dataclass
class World:
    """All that a config leads to, by what it is said to."""

    listed: Any
    """What the kubelet is shown: `ListAndWatch`."""
    answered: Any
    """What containers get: `Allocate`."""
    preferred: Any
    """Which devices they get: `GetPreferredAllocation`."""
    labels: dict[str, str]
    gfd: options.Options
    """How labels are written."""
    notes: tuple[str, ...]
    """What people are told to have no effect."""


def world(text: str, root: Path) -> World:
    """The world of a node with this config."""
    config = configured.completed(reading.parse(text), SETTINGS)
    inventory = nodes.inventory(*CARDS)
    seen = offering.remember(offering.Seen(), inventory)
    offer = offering.offer(inventory, seen, config)
    way = configuring.way(config.flags, config.imex, SETTINGS)
    vendor = SimulatedVendor(contract.VendorSettings(host_root=str(root)))
    found = specs.find(vendor, offer, way, driver=nodes.READY, hook_path="", root=Root(root))
    policy = config.flags.plugin.shared_devices_allocation_policy
    at = standing.Standing(
        offer=offer,
        way=way,
        ready=found.ready,
        policy=policy or model.AllocationPolicy.DISTRIBUTED,
    )
    chosen = options.merged(GfdSettings(), config)
    return World(
        listed={each.name: str(standing.devices(at, each.name)) for each in offer.resources},
        answered={each.name: list(answers(at, each)) for each in offer.resources},
        preferred={each.name: preferred(at, each) for each in offer.resources},
        labels=labelling.plan(labelling.Node(inventory), chosen).labels,
        gfd=chosen,
        notes=config.notes,
    )


def answers(at: standing.Standing, resource: offering.Resource) -> Iterator[str]:
    """What containers with one, and with two, of a resource are told."""
    ids = [each.id for each in resource.devices]
    for wanted in (ids[:1], ids[:2]):
        try:
            yield str(standing.allocate(at, resource.name, wanted))
        except errors.GpudeckError as error:
            yield error.message


def preferred(at: standing.Standing, resource: offering.Resource) -> list[str]:
    """Which device a container gets after one of the first card was given away."""
    left = [each.id for each in resource.devices][1:]
    request = pb.ContainerPreferredAllocationRequest(available_deviceIDs=left, allocation_size=1)
    return standing.prefer(at, resource.name, request) if left else []


def flag(text: str) -> str:
    return f"flags: {{{text}}}"


def plugin(text: str) -> str:
    return flag(f"plugin: {{{text}}}")


def gfd(text: str) -> str:
    return flag(f"gfd: {{{text}}}")


def shared(entry: str = "name: gpu, replicas: 2", more: str = "", by: str = "timeSlicing") -> str:
    return f"sharing: {{{by}: {{{more} resources: [{{{entry}}}]}}}}"


def named(kind: str, pattern: str, name: str = "a") -> str:
    return f"resources: {{{kind}: [{{pattern: '{pattern}', name: {name}}}]}}"


MIXED = "flags: {migStrategy: mixed}\n"
ENVIRONMENT = "plugin: {deviceListStrategy: envvar}"
ROWS = [
    ("flags.mig_strategy", "", flag("migStrategy: mixed"), "listed"),
    ("flags.mig_strategy", "", flag("migStrategy: mixed"), "labels"),
    (
        "flags.gdrcopy_enabled",
        flag(ENVIRONMENT),
        flag(f"gdrcopyEnabled: true, {ENVIRONMENT}"),
        "answered",
    ),
    ("flags.gds_enabled", flag(ENVIRONMENT), flag(f"gdsEnabled: true, {ENVIRONMENT}"), "answered"),
    (
        "flags.mofed_enabled",
        flag(ENVIRONMENT),
        flag(f"mofedEnabled: true, {ENVIRONMENT}"),
        "answered",
    ),
    ("flags.use_node_feature_api", "", flag("useNodeFeatureAPI: false"), "gfd"),
    ("flags.fail_on_init_error", "", flag("failOnInitError: false"), "gfd"),
    ("flags.fail_on_init_error", "", flag("failOnInitError: false"), "notes"),
    ("flags.mps_root", "", flag("mpsRoot: /run/mps"), "notes"),
    ("flags.nvidia_driver_root", "", flag("nvidiaDriverRoot: /a"), "notes"),
    ("flags.nvidia_dev_root", "", flag("nvidiaDevRoot: /a"), "notes"),
    ("flags.device_discovery_strategy", "", flag("deviceDiscoveryStrategy: tegra"), "notes"),
    ("flags.plugin.pass_device_specs", "", plugin("passDeviceSpecs: true"), "answered"),
    ("flags.plugin.device_list_strategy", "", plugin("deviceListStrategy: envvar"), "answered"),
    (
        "flags.plugin.device_list_strategy",
        "",
        plugin("deviceListStrategy: volume-mounts"),
        "answered",
    ),
    ("flags.plugin.device_id_strategy", "", plugin("deviceIDStrategy: index"), "answered"),
    (
        "flags.plugin.cdi_annotation_prefix",
        plugin("deviceListStrategy: cdi-annotations"),
        plugin("deviceListStrategy: cdi-annotations, cdiAnnotationPrefix: mine.io/"),
        "answered",
    ),
    ("flags.plugin.nvidia_ctk_path", "", plugin("nvidiaCTKPath: /a"), "notes"),
    ("flags.plugin.container_driver_root", "", plugin("containerDriverRoot: /a"), "notes"),
    (
        "flags.plugin.shared_devices_allocation_policy",
        shared(),
        f"{plugin('sharedDevicesAllocationPolicy: packed')}\n{shared()}",
        "preferred",
    ),
    ("flags.gfd.oneshot", "", gfd("oneshot: true"), "gfd"),
    ("flags.gfd.no_timestamp", "", gfd("noTimestamp: true"), "gfd"),
    ("flags.gfd.sleep_interval_seconds", "", gfd("sleepInterval: 5s"), "gfd"),
    ("flags.gfd.output_file", "", gfd("outputFile: /run/labels"), "gfd"),
    ("flags.gfd.machine_type_file", "", gfd("machineTypeFile: /run/type"), "gfd"),
    ("resources.gpus.pattern", named("gpus", "T4"), named("gpus", "*A100*"), "listed"),
    ("resources.gpus.name", named("gpus", "*"), named("gpus", "*", "b"), "listed"),
    ("resources.mig.pattern", MIXED + named("mig", "2g*"), MIXED + named("mig", "1g*"), "listed"),
    ("resources.mig.name", MIXED + named("mig", "*"), MIXED + named("mig", "*", "b"), "listed"),
    ("sharing.strategy", shared(), shared(by="mps"), "answered"),
    ("sharing.strategy", shared(), shared(by="mps"), "labels"),
    ("sharing.rename_by_default", shared(), shared(more="renameByDefault: true,"), "listed"),
    ("sharing.rename_by_default", shared(), shared(more="renameByDefault: true,"), "labels"),
    (
        "sharing.fail_requests_greater_than_one",
        shared(),
        shared(more="failRequestsGreaterThanOne: true,"),
        "answered",
    ),
    (
        "sharing.resources.name",
        MIXED + shared(),
        MIXED + shared("name: mig-1g.5gb, replicas: 2"),
        "listed",
    ),
    ("sharing.resources.replicas", shared(), shared("name: gpu, replicas: 3"), "listed"),
    ("sharing.resources.replicas", shared(), shared("name: gpu, replicas: 3"), "labels"),
    (
        "sharing.resources.rename",
        shared(),
        shared("name: gpu, replicas: 2, rename: part"),
        "listed",
    ),
    ("sharing.resources.count", shared(), shared("name: gpu, replicas: 2, devices: 1"), "listed"),
    (
        "sharing.resources.devices",
        shared(),
        shared("name: gpu, replicas: 2, devices: [GPU-1]"),
        "listed",
    ),
    (
        "sharing.resources.memory_limit",
        shared(),
        shared("name: gpu, replicas: 2, memoryLimit: 2Gi"),
        "answered",
    ),
    (
        "imex.channel_ids",
        flag(ENVIRONMENT),
        f"{flag(ENVIRONMENT)}\nimex: {{channelIDs: [0]}}",
        "answered",
    ),
    (
        "imex.required",
        "imex: {channelIDs: [0]}",
        "imex: {channelIDs: [0], required: true}",
        "answered",
    ),
]
"""Field of the model, a config, one with the field too, and what of the world is another one."""


@pytest.mark.parametrize(
    ("before", "after", "aspect"),
    [pytest.param(*row[1:], id=f"{row[0]}-{row[3]}") for row in ROWS],
)
def test_a_field_changes_the_world(tmp_path: Path, before: str, after: str, aspect: str) -> None:
    assert getattr(world(before, tmp_path), aspect) != getattr(world(after, tmp_path), aspect)


def fields(type_: Any, path: str = "") -> Iterator[str]:
    """The paths of all fields that hold no other fields."""
    for name, hint in typing.get_type_hints(type_).items():
        inner = [each for each in parts(hint) if issubclass(each, msgspec.Struct)]
        if inner:
            yield from fields(inner[0], f"{path}{name}.")
        else:
            yield f"{path}{name}"


def parts(hint: Any) -> list[type]:
    found = typing.get_args(hint)
    if not found:
        return [hint] if isinstance(hint, type) else []
    return [part for each in found for part in parts(each)]


def test_no_field_is_left_out() -> None:
    assert {row[0] for row in ROWS} == set(fields(model.Config)) - {"notes"}
