# SPDX-License-Identifier: Apache-2.0
"""The named config that holds on a node, as its label, the ConfigMap and the API server change."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support import apiserver

from gpudeck.api import resources
from gpudeck.kube.client import Client
from gpudeck.pluginconfig import following, keeping, selecting
from gpudeck.pluginconfig.settings import ConfigSettings

SETTINGS = ConfigSettings(node_name="node-0", namespace="gpu", config_map="configs")
GOOD = "sharing: {timeSlicing: {resources: [{name: gpu, replicas: %d}]}}"
Told = asyncio.Queue[selecting.Selected]


def label(server: apiserver.ApiServer, config: str) -> None:
    labels = {selecting.LABEL: config} if config else {}
    server.put(resources.NODE, {"metadata": {"name": "node-0", "labels": labels}})


def configure(server: apiserver.ApiServer, **configs: str) -> None:
    metadata = {"name": "configs", "namespace": "gpu"}
    server.put(resources.CONFIG_MAP, {"metadata": metadata, "data": configs})


@contextlib.asynccontextmanager
async def followed(
    api: Client, settings: ConfigSettings = SETTINGS, state: Path | None = None
) -> AsyncIterator[Told]:
    told: Told = asyncio.Queue()
    nodes = following.own_node(api, "node-0")
    kept = keeping.State(state) if state is not None else None
    found = following.Following(settings, api, told.put_nowait, nodes=nodes, state=kept)
    tasks = [asyncio.create_task(nodes.run()), asyncio.create_task(found.run())]
    try:
        async with asyncio.timeout(20):
            yield told
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_label_and_config_map_are_followed() -> None:
    async with apiserver.ApiServer() as server, server.client() as api:
        label(server, "slice-4")
        configure(server, **{"slice-4": GOOD % 4, "slice-10": GOOD % 10})
        async with followed(api) as told:
            assert (await told.get()).name == "slice-4"
            label(server, "slice-10")
            assert (await told.get()).name == "slice-10"
            configure(server, **{"slice-10": GOOD % 11})
            assert (await told.get()).text == GOOD % 11
            label(server, "none")
            kept = await told.get()
            assert (kept.name, kept.problem is None) == ("slice-10", False)
            label(server, "")
            assert await told.get() == selecting.NOTHING


async def test_what_the_kubelet_reports_of_the_node_wakes_nobody() -> None:
    async with apiserver.ApiServer() as server, server.client() as api:
        label(server, "slice-4")
        configure(server, **{"slice-4": GOOD % 4})
        async with followed(api) as told:
            await told.get()
            labels = {selecting.LABEL: "slice-4"}
            node = {"metadata": {"name": "node-0", "labels": labels}, "status": {"phase": "x"}}
            server.put(resources.NODE, node)
            label(server, "none")
            assert (await told.get()).problem is not None


async def test_a_label_without_any_config_map_names_no_config() -> None:
    async with apiserver.ApiServer() as server, server.client() as api:
        label(server, "slice-4")
        settings = ConfigSettings(node_name="node-0", namespace="gpu")
        async with followed(api, settings) as told:
            selected = await told.get()
    assert selected.problem is not None
    assert selected.problem.reason == selecting.UNKNOWN


@pytest.mark.parametrize("path", ["configmaps", "nodes"])
async def test_the_config_of_the_last_run_holds_while_the_api_server_is_away(
    tmp_path: Path, path: str
) -> None:
    state = tmp_path / "config.json"
    async with apiserver.ApiServer() as server, server.client() as api:
        label(server, "slice-4")
        configure(server, **{"slice-4": GOOD % 4})
        async with followed(api, state=state) as told:
            await told.get()
            async with asyncio.timeout(20):
                while not state.exists():  # noqa: ASYNC110 - a file tells nobody.
                    await asyncio.sleep(0.01)
        server.fail(2, status=503, path=path)
        async with followed(api, state=state) as told:
            restored = await told.get()
            assert (restored.name, restored.origin) == ("slice-4", "fallback")
            assert (await told.get()).origin == "label"


async def test_a_group_s_label_chooses_where_the_node_s_own_does_not() -> None:
    settings = ConfigSettings(
        node_name="node-0", namespace="gpu", config_map="configs", group_config_map="group"
    )

    def chosen(**known: str) -> None:
        named = {"own": selecting.LABEL, "group": selecting.GROUP_LABEL}
        labels = {named[key]: value for key, value in known.items()}
        server.put(resources.NODE, {"metadata": {"name": "node-0", "labels": labels}})

    async with apiserver.ApiServer() as server, server.client() as api:
        configure(server, **{"slice-4": GOOD % 4, "TimeSlicing": GOOD % 2})
        group = {"name": "group", "namespace": "gpu"}
        configs = {"Exclusive": "version: v1", "TimeSlicing": GOOD % 5}
        server.put(resources.CONFIG_MAP, {"metadata": group, "data": configs})
        chosen(group="TimeSlicing")
        async with followed(api, settings) as told:
            selected = await told.get()
            assert (selected.origin, selected.text) == ("node group", GOOD % 5)
            chosen(group="TimeSlicing", own="slice-4")
            assert (await told.get()).origin == "label"
            chosen(group="Exclusive")
            assert (await told.get()).name == "Exclusive"
            chosen()
            assert await told.get() == selecting.NOTHING
