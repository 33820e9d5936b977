# SPDX-License-Identifier: Apache-2.0
"""The process gfd on simulated NVIDIA hosts: what is changed on the host changes the labels.

The slow readings are switched off, so that a change is seen by what the process looks at.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contract.vendors import benches
from tests.support import apiserver

from gpudeck import errors
from gpudeck.api import labels as names
from gpudeck.api import resources
from gpudeck.gfd import main, metrics
from gpudeck.gfd.settings import Settings
from gpudeck.pluginconfig import keeping, selecting

FILE = "etc/kubernetes/node-feature-discovery/features.d/gfd"
NEVER = 3600.0
SHARED = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"
SECONDS = 20.0


class Host:
    """A simulated host, its config file and the labels that it has."""

    def __init__(self, bench: benches.NvidiaBench, folder: Path) -> None:
        self.bench = bench
        self.config = folder / "config.yaml"
        self.file = bench.tree / FILE
        self.version = bench.tree / "proc/driver/nvidia/version"

    def settings(self, **changes: Any) -> Settings:
        defaults: dict[str, Any] = {
            "host_root": self.bench.tree,
            "host_root_on_node": "/mnt/host",
            "use_node_feature_api": "false",
            "mig_strategy": "mixed",
            "look_seconds": 0.05,
            "poll_seconds": NEVER,
            "mig_seconds": NEVER,
        }
        return Settings(**{**defaults, **changes})

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the file, without the prefix."""
        if not self.file.exists():
            return {}
        lines = [each for each in self.file.read_text().splitlines() if not each.startswith("#")]
        return dict(each.removeprefix("nvidia.com/").split("=", 1) for each in lines)

    async def until(self, true: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        """Wait for labels of which something holds."""
        async with asyncio.timeout(SECONDS):
            while not true(self.labels):  # noqa: ASYNC110 - a file tells nobody.
                await asyncio.sleep(0.02)
        return self.labels


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[asyncio.Task[None]]:
    """Run the process inside the block; leaving it is a SIGTERM."""
    task = asyncio.create_task(main.run(settings))
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def machine() -> str:
    return "a100-40gb-x4"


@pytest.fixture
def host(machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    if os.geteuid() != 0:
        pytest.skip("device nodes of the simulated host can be made by root only")
    return Host(benches.NvidiaBench(tmp_path, monkeypatch, machine), tmp_path)


async def test_mig_devices_that_are_made_and_removed_change_the_labels(host: Host) -> None:
    async with running(host.settings()):
        first = await host.until(lambda labels: labels.get("gpu.count") == "4")
        assert (first["gpu.product"], first["mig.strategy"]) == ("NVIDIA-A100-SXM4-40GB", "mixed")
        host.bench.enable_mig(0)
        host.bench.partition(0, "14,14,19,19,19")
        told = await host.until(lambda labels: labels.get("mig-1g.5gb.count") == "3")
        assert (told["mig-2g.10gb.count"], told["mig-1g.5gb.memory"]) == ("2", "4864")
        assert int(told["gfd.timestamp"]) >= int(first["gfd.timestamp"])
        host.bench.unpartition(0)
        await host.until(lambda labels: not any(each.startswith("mig-") for each in labels))


async def test_a_mig_mode_without_instances_is_seen_too(host: Host) -> None:
    async with running(host.settings(mig_strategy="single", mig_seconds=0.1)):
        await host.until(lambda labels: labels.get("gpu.count") == "4")
        host.bench.enable_mig(0)
        told = await host.until(lambda labels: labels.get("gpu.count") == "0")
        assert told["gpu.product"] == "NVIDIA-A100-SXM4-40GB-MIG-INVALID"


async def test_a_new_config_changes_the_labels_and_a_wrong_one_does_not(host: Host) -> None:
    host.config.write_text("version: v1\n")
    async with running(host.settings(config_file=str(host.config))):
        await host.until(lambda labels: labels.get("gpu.replicas") == "1")
        host.config.write_text("version: v1\n" + SHARED)
        told = await host.until(lambda labels: labels.get("gpu.replicas") == "4")
        assert told["gpu.product"] == "NVIDIA-A100-SXM4-40GB-SHARED"
        host.config.write_text("version: v1\nsharing: {timeSlicing: {resources: [{}]}}\n")
        await host.until(lambda labels: metrics.config_valid._value.get() == 0)
        assert host.labels == told
        host.config.write_text("version: v1\n" + SHARED.replace("4", "5"))
        await host.until(lambda labels: labels.get("gpu.replicas") == "5")


async def test_a_wrong_config_at_the_start_is_refused_by_its_field(host: Host) -> None:
    host.config.write_text("version: v1\nflags: {migStrategy: both}\n")
    with pytest.raises(errors.InvalidError, match=r"flags\.migStrategy: 'both'"):
        await main.run(host.settings(config_file=str(host.config)))


async def test_a_driver_that_comes_gives_labels(host: Host) -> None:
    told = host.version.read_text()
    host.version.unlink()
    host.bench.take_driver_away()
    async with running(host.settings()):
        await host.until(lambda labels: metrics.held._value.get() == 1)
        assert host.labels == {}
        host.bench.turn_host("init=0")
        host.version.write_text(told)
        await host.until(lambda labels: labels.get("gpu.count") == "4")


async def test_labels_of_a_driver_that_stays_away_go_in_the_end(host: Host) -> None:
    host.bench.take_driver_away()
    async with running(host.settings(hold_seconds=0.2)):
        assert set(await host.until(bool)) == {"vgpu.present", "gfd.timestamp"}


async def test_a_restart_takes_no_label_away(host: Host) -> None:
    async with running(host.settings()):
        before = await host.until(lambda labels: labels.get("gpu.count") == "4")
    assert host.labels == before
    assert host.file.read_text().startswith("# +expiry-time=")
    async with running(host.settings()):
        await host.until(lambda labels: "#" not in host.file.read_text())
        assert set(host.labels) == set(before)


async def test_once_is_once(host: Host) -> None:
    await main.run(host.settings(oneshot="true", no_timestamp="true"))
    assert host.labels["gpu.count"] == "4"
    assert "gfd.timestamp" not in host.labels
    assert "#" not in host.file.read_text()


async def test_once_without_a_driver_is_an_error_unless_it_is_not_to_be(host: Host) -> None:
    host.bench.take_driver_away()
    with pytest.raises(ExceptionGroup) as caught:
        await main.run(host.settings(oneshot="true"))
    assert caught.group_contains(errors.UnavailableError)
    assert host.labels == {}
    await main.run(host.settings(oneshot="true", fail_on_init_error="false"))
    assert host.labels["vgpu.present"] == "false"


def put_config_map(server: apiserver.ApiServer, **configs: str) -> None:
    metadata = {"name": "nvidia-time-slicing-config", "namespace": "gpu"}
    server.put(resources.CONFIG_MAP, {"metadata": metadata, "data": configs})


def put_node(server: apiserver.ApiServer, config: str) -> None:
    labels = {"nvidia.com/device-plugin.config": config} if config else {}
    server.put(resources.NODE, {"metadata": {"name": "node-0", "labels": labels}})


async def test_the_nodes_label_chooses_the_named_config(host: Host) -> None:
    async with apiserver.ApiServer() as server:
        put_node(server, "slice-4")
        put_config_map(server, **{"slice-4": SHARED, "slice-10": SHARED.replace("4", "10")})
        settings = host.settings(
            kubeconfig=server.kubeconfig(),
            node_name="node-0",
            namespace="gpu",
            config_map="nvidia-time-slicing-config",
        )
        async with running(settings):
            first = await host.until(bool)
            assert first["gpu.replicas"] == "4"
            put_node(server, "slice-10")
            await host.until(lambda labels: labels["gpu.replicas"] == "10")
            put_node(server, "slice-5")
            await host.until(lambda labels: metrics.config_valid._value.get() == 0)
            assert host.labels["gpu.replicas"] == "10"
            put_config_map(server, **{"slice-5": SHARED.replace("4", "5")})
            await host.until(lambda labels: labels["gpu.replicas"] == "5")
            put_node(server, "")
            put_config_map(server)
            await host.until(lambda labels: labels["gpu.replicas"] == "1")


async def test_labels_tell_of_the_plugins_last_good_config_while_the_chosen_one_is_wrong(
    host: Host, tmp_path: Path
) -> None:
    state = tmp_path / "device-plugin.json"
    last = selecting.select({"slice-4": SHARED}, selecting.Choices(label="slice-4"), None)
    await keeping.State(state).save(last)
    async with apiserver.ApiServer() as server:
        put_node(server, "slice-5")
        put_config_map(server, **{"slice-5": "version: v0"})
        settings = host.settings(
            kubeconfig=server.kubeconfig(),
            node_name="node-0",
            namespace="gpu",
            config_map="nvidia-time-slicing-config",
            plugin_state=str(state),
        )
        async with running(settings):
            assert (await host.until(bool))["gpu.replicas"] == "4"
            await host.until(lambda labels: metrics.config_valid._value.get() == 0)
            assert host.labels["gpu.replicas"] == "4"


def put_mode(server: apiserver.ApiServer, mode: str) -> None:
    labels = {names.ACTIVE_MODE: mode} if mode else {}
    taint = {"key": names.MODE_CHANGE, "value": "device-plugin", "effect": "NoSchedule"}
    node = {"metadata": {"name": "node-0", "labels": labels}}
    server.put(resources.NODE, node | ({} if mode else {"spec": {"taints": [taint]}}))


def by_api(host: Host, server: apiserver.ApiServer, **changes: Any) -> Settings:
    """Labels go into a NodeFeature of node-0."""
    return host.settings(
        use_node_feature_api="true",
        kubeconfig=server.kubeconfig(),
        node_name="node-0",
        namespace="gpu",
        **changes,
    )


def told(server: apiserver.ApiServer) -> dict[str, str]:
    """The labels of the NodeFeature, without the prefix."""
    found = server.objects(resources.NODE_FEATURE).get("gpu/nvidia-features-for-node-0")
    labels: dict[str, str] = found["spec"]["labels"] if found is not None else {}
    return {name.removeprefix("nvidia.com/"): each for name, each in labels.items()}


def passes() -> float:
    return metrics.registry.get_sample_value("gpudeck_gfd_pass_seconds_count") or 0.0


@pytest.mark.parametrize("machine", ["h100-x8"])
async def test_partitions_made_for_claims_change_no_label(host: Host) -> None:
    async with apiserver.ApiServer() as server:
        put_mode(server, "dra")
        settings = by_api(host, server, no_timestamp="true")

        def labels() -> dict[str, str]:
            return told(server)

        async with running(settings):
            await server.until(labels)
            whole = labels()
            assert (whole["gpu.count"], whole["mig.strategy"]) == ("8", "mixed")
            passed, written = passes(), len(server.writes)
            host.bench.enable_partitions(0)
            host.bench.partition(0, "19,19,14")
            await server.until(lambda: passes() > passed)
            assert labels() == whole
            assert len(server.writes) == written
            put_mode(server, "")
            put_mode(server, "device-plugin")
            await server.until(lambda: labels().get("mig-1g.10gb.count") == "2")
            put_mode(server, "dra")
            await server.until(lambda: labels() == whole)


@pytest.mark.parametrize("machine", ["h100-x8"])
async def test_a_restart_while_the_mode_is_changed_changes_no_label(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with apiserver.ApiServer() as server:
        put_mode(server, "dra")
        settings = by_api(host, server, no_timestamp="true")
        host.bench.enable_partitions(0)
        host.bench.partition(0, "19,19,14")
        async with running(settings):
            await server.until(lambda: told(server))
        whole = told(server)
        assert "mig-1g.10gb.count" not in whole
        put_mode(server, "")
        async with running(settings):
            written = len(server.writes)
            await server.until(lambda: "Labels stay in the mode" in caplog.text)
            put_mode(server, "dra")
            await server.until(lambda: len(server.writes) > written)
            assert told(server) == whole
            put_mode(server, "device-plugin")
            await server.until(lambda: told(server).get("mig-1g.10gb.count") == "2")


async def test_the_labels_of_a_node_are_a_node_feature(host: Host) -> None:
    async with apiserver.ApiServer() as server:
        settings = by_api(host, server)
        server.fail(3, status=503, path="nodefeatures")
        async with running(settings):
            found = await server.until(lambda: server.objects(resources.NODE_FEATURE))
            labels = found["gpu/nvidia-features-for-node-0"]["spec"]["labels"]
            assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB"
        assert server.objects(resources.NODE_FEATURE)
    assert not host.file.exists()


async def test_a_node_that_is_made_anew_has_its_labels_at_once(host: Host) -> None:
    """The NodeFeature of a Node that is gone is swept (`features gc`)."""
    async with apiserver.ApiServer() as server:
        put_mode(server, "device-plugin")
        settings = by_api(host, server, sleep_interval="infinite")
        async with running(settings):
            await server.until(lambda: server.objects(resources.NODE_FEATURE))
            server.remove(resources.NODE, "node-0")
            server.remove(resources.NODE_FEATURE, "gpu/nvidia-features-for-node-0")
            put_mode(server, "device-plugin")
            await server.until(lambda: server.objects(resources.NODE_FEATURE))
