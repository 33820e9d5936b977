# SPDX-License-Identifier: Apache-2.0
"""The process node-agent: builds its parts and runs them in one group.

The bus is first looked at when the ConfigMap with the supported vendors has been read
or is known to be absent: until then nothing can be said to be a card, or not to be one.
"""

from __future__ import annotations

import asyncio

from gpudeck import errors, logs
from gpudeck import settings as shared
from gpudeck.agent import events, metrics, nodes, publishing, scanning, supported
from gpudeck.agent.settings import Settings
from gpudeck.api import labels
from gpudeck.api.core import ConfigMap
from gpudeck.api.resources import CONFIG_MAP
from gpudeck.errors import GpudeckError, InvalidError
from gpudeck.host import certificates, uevents
from gpudeck.host.root import Root
from gpudeck.kube import recording, serving
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.watching import Change

_log = logs.get(__name__)


class Agent:
    """The parts of the process and what connects them."""

    def __init__(self, settings: Settings, api: Client) -> None:
        self._settings = settings
        self._api = api
        self._root = Root(settings.host_root, on_node=settings.host_root_on_node)
        self._recorder = recording.Recorder(api, "gpu-node-agent", instance=settings.node_name)
        self._report = events.Events(self._recorder, settings.node_name)
        self._vendors = Cache(
            api,
            CONFIG_MAP,
            ConfigMap,
            namespace=settings.namespace or api.namespace,
            field_selector=f"metadata.name={labels.SUPPORTED_VENDORS}",
        )
        self._supported = supported.DEFAULT
        self._node = nodes.Node(api, settings.node_name)
        self._publisher = publishing.Publisher(api, self._node, self._report)
        self._scanning = scanning.Scanning(
            scanning.Scanner(self._root, settings.node_name),
            self._show,
            self._report.bus_unreadable,
            supported=lambda: self._supported,
            seconds=settings.scan_seconds,
        )
        self._told: tuple[object, ...] = ()

    async def run(self) -> None:
        """Run every part until one of them fails."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._vendors.run(), name="supported vendors")
            group.create_task(self._publisher.cache.run(), name="physicalgpus")
            group.create_task(self._publisher.run(), name="publishing")
            group.create_task(self._node.cache.run(), name="node")
            group.create_task(self._node.run(), name="node label")
            group.create_task(self._recorder.run(), name="events")
            group.create_task(self._serve(), name="serving")
            group.create_task(self._scan(), name="scanning")

    async def _serve(self) -> None:
        await serving.serve(
            self._settings,
            self._api,
            hanging=self._scanning.hanging,
            text=metrics.text,
            certificate=certificates.self_signed,
        )

    async def _scan(self) -> None:
        await self._vendors.synced()
        self._vendors.subscribe(self._vendors_changed)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._scanning.run(), name="looking")
            group.create_task(
                uevents.watch(
                    self._root,
                    self._scanning.again,
                    bound=lambda: self._scanning.addresses,
                    poll_seconds=self._settings.poll_seconds,
                ),
                name="bus",
            )

    def _vendors_changed(self, change: Change[ConfigMap]) -> None:
        """Use the new list, or keep the last good one and say why."""
        if change.new is None:
            self._supported = supported.DEFAULT
            _log.info("There is no list of supported vendors; using the built-in one")
        else:
            try:
                self._supported = supported.parse(change.new.data)
            except InvalidError as error:
                metrics.vendors_valid.set(0)
                is_default = self._supported is supported.DEFAULT
                kept = "built-in list" if is_default else "last valid list"
                _log.warning("The list of supported vendors is not valid", error=error, kept=kept)
                self._report.vendors_refused(error, f"The {kept} stays in force.")
                return
            _log.info("Using the list of supported vendors", vendors=len(self._supported.vendors))
        metrics.vendors_valid.set(1)
        self._scanning.again()

    def _show(self, seen: scanning.Seen) -> None:
        self._publisher.show(seen)
        self._node.show(seen.vendor)
        self._count(seen)
        found = seen.inventory
        vendors = sorted({card.vendor for card in found.cards.values()})
        told = (tuple(vendors), seen.vendor, tuple(sorted(found.unreadable.values())))
        if told == self._told:
            return
        self._told = told
        _log.info("Looked at the PCI bus", cards=len(found.cards), vendors=",".join(vendors))
        if len(vendors) > 1 and seen.vendor is not None:
            self._report.several_vendors(vendors, seen.vendor)
        for message in found.unreadable.values():
            _log.warning("A PCI device is left out", error=message)
            self._report.device_unreadable(message)

    def _count(self, seen: scanning.Seen) -> None:
        metrics.unreadable_devices.set(len(seen.inventory.unreadable))
        found = [card.vendor for card in seen.inventory.cards.values()]
        for vendor in self._supported.vendors.values():
            metrics.cards.labels(vendor).set(found.count(vendor))


async def run(settings: Settings) -> None:
    """Run until cancelled. Raises GpudeckError for settings that cannot work."""
    shared.check_node_name(settings)
    try:
        async with await Client.connect(settings.kubeconfig) as api:
            await Agent(settings, api).run()
    except* GpudeckError as group:
        raise errors.first(group) from group
