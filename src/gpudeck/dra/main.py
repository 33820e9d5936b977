# SPDX-License-Identifier: Apache-2.0
"""The process dra-plugin: builds its parts and runs them in one group.

The kubelet is served as soon as the checkpoint is clean, before the API server or the
adapter have answered, since neither is needed to unprepare. The rest starts beside it:
the adapter's inventory, our own ResourceSlices and PhysicalGPUs, the CDI hook.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from gpudeck import errors, logs
from gpudeck import settings as shared
from gpudeck.api import labels
from gpudeck.cdi import hooks
from gpudeck.cdi.files import Folder
from gpudeck.dra import (
    adapters,
    amounts,
    claimstatus,
    collecting,
    events,
    exposing,
    health,
    inheriting,
    ledger,
    metrics,
    preparing,
    publishing,
    reporting,
    server,
    switching,
    withdrawing,
)
from gpudeck.dra.settings import Settings
from gpudeck.errors import BusyError, GpudeckError
from gpudeck.host import certificates, locks, root
from gpudeck.kube import client, recording, serving
from gpudeck.kubelet import registering, using

log = logs.get(__name__)

BOOT_ID = "/proc/sys/kernel/random/boot_id"
EFFECTS = ("NoSchedule", "NoExecute")
RELEASE_SECONDS = 5.0
"""How soon it is tried again to undo what was made for a claim and is still in use."""
WAIT_SECONDS = 60.0
"""How often a plugin says that it waits for another one."""
_NOT_REGISTERED = "the kubelet has not registered the plugin yet"


class Plugin:
    """The parts of the process, wired together."""

    def __init__(self, settings: Settings, api: client.Client, adapter: adapters.Adapter) -> None:
        node = settings.node_name
        self.settings = settings
        self._api = api
        self.recorder = recording.Recorder(api, labels.MANAGER_DRA_PLUGIN, instance=node)
        self.events = events.NodeEvents(self.recorder, node)
        self.adapter = adapter
        folder = Folder(settings.cdi_root)
        boot_id = root.Root(settings.host_root).attribute(BOOT_ID)
        exposure = exposing.Exposure(
            settings.data_dir, settings.cdi_root, is_wanted=settings.device_metadata
        )
        self.ledger = ledger.Ledger(
            settings.data_dir, folder, self.events, exposure=exposure, boot_id=boot_id
        )
        self.amounts = amounts.Amounts(api, self.events, node, default=settings.share_memory)
        self.inheritance = inheriting.Inheritance(
            settings, adapter, self.ledger, self.amounts.cache
        )
        self._add_writers()
        self._loop = asyncio.get_running_loop()
        self._left = asyncio.Event()
        """Set when something of a claim may have been left to be removed."""
        self.ledger.subscribe(self._held_changed)
        self._hooks = hooks.Hooks(settings.cdi_hook, settings.data_dir)
        self.preparer = preparing.Preparer(
            api,
            adapter,
            self.ledger,
            folder,
            exposure=exposure,
            node_name=node,
            hook_path=lambda: self._hooks.path,
            late=self.switcher.late,
        )
        self.collector = collecting.Collector(
            api,
            self.ledger,
            self.preparer,
            collecting.Node(node, lambda: using.used(settings.pod_resources), adapter.holding),
            forgotten_seconds=settings.forgotten_seconds,
        )
        self.health = health.Health(adapter, node, lambda: self.publisher.published or ())
        self.server = server.Server(self.preparer, self.health)
        self._endpoint = registering.Endpoint(
            labels.DRIVER, settings.data_dir, settings.registry_dir, settings.pod_uid
        )
        self._refused = _NOT_REGISTERED
        adapter.subscribe(lambda: metrics.adapter_connected.set(adapter.is_connected))

    def _add_writers(self) -> None:
        """Make what writes to the API server, and let each hear of the others."""
        api, adapter, node = self._api, self.adapter, self.settings.node_name
        self.publisher = publishing.Publisher(
            api,
            adapter,
            self.events,
            node,
            held=self.ledger.held_devices,
            kept_off=lambda: self.switcher.kept_off,
            policy=publishing.Policy(
                shares=self.amounts.policy, effect=self.settings.unhealthy_effect
            ),
            leaving=lambda: withdrawing.is_leaving(self.amounts.cache.objects.get(node)),
        )
        self.amounts.cache.subscribe(lambda _: self.publisher.wake())
        self.amounts.subscribe(self.publisher.wake)
        self.reporter = reporting.Reporter(api, adapter, self.publisher, node)
        self.switcher = switching.Switcher(
            api,
            adapter,
            self.ledger,
            self.events,
            node_name=node,
            node=self.amounts.cache,
            gpus=self.reporter.cache,
        )
        self.claims = claimstatus.ClaimStatus(api, adapter, self.ledger, node)
        publisher, reporter, switcher = self.publisher, self.reporter, self.switcher
        switcher.published = lambda: None if publisher.rejection else publisher.published
        switcher.ours = publisher.ours
        reporter.applied = lambda: switcher.conditions
        publisher.subscribe(switcher.wake)
        switcher.subscribe(publisher.wake)
        switcher.subscribe(reporter.wake)

    def _held_changed(self) -> None:
        # The checkpoint is written in threads.
        self._loop.call_soon_threadsafe(self.publisher.held_changed)
        self._loop.call_soon_threadsafe(self.switcher.wake)
        self._loop.call_soon_threadsafe(self._left.set)

    async def run(self) -> None:
        """Serve until cancelled.

        The adapter is followed to the very end: one that is told to end at the same moment
        serves on while it has a reader, and calls in work need it.
        """
        async with asyncio.TaskGroup() as outer, asyncio.TaskGroup() as group:
            outer.create_task(self.adapter.follow(), name="adapter")
            group.create_task(self.publisher.cache.run(), name="resourceslices")
            group.create_task(self.publisher.classes.run(), name="gpuclasses")
            group.create_task(self.amounts.cache.run(), name="node")
            group.create_task(self.reporter.cache.run(), name="physicalgpus")
            group.create_task(self._write(), name="writing")
            group.create_task(self.recorder.run(), name="events")
            group.create_task(self._pages(), name="serving")
            group.create_task(self._release(), name="releasing")
            group.create_task(self._serve(), name="kubelet")
            group.create_task(self._look_again(), name="hooks")

    async def _release(self) -> None:
        """Have removed what was left of claims, whenever the adapter is there, for ever."""
        changed = self._left
        self.adapter.subscribe(changed.set)
        while True:
            await changed.wait()
            changed.clear()
            try:
                if self.adapter.is_connected and not await self.preparer.release():
                    await asyncio.sleep(RELEASE_SECONDS)
                    changed.set()
            except BusyError as error:
                log.warning("Cannot look for what is to be undone", error=error)

    async def _write(self) -> None:
        """Write to the API server while no other plugin of this node does.

        Two versions that serve at once during an update may publish different things, and
        each would put right for ever what the other wrote; so the new one waits for the old.
        """
        async with contextlib.AsyncExitStack() as stack:
            while not await self._is_alone(stack):
                log.info("Waiting for the plugin before this one to end")
            # Before the label is known the setting would be published, and changed at once.
            await self.amounts.cache.synced()
            is_ours = await self.inheritance.take()
            async with asyncio.TaskGroup() as group:
                if not is_ours:
                    group.create_task(self.inheritance.run(), name="inheriting")
                group.create_task(self.publisher.run(), name="publishing")
                group.create_task(self.reporter.run(), name="reporting")
                group.create_task(self.claims.run(), name="claims")
                group.create_task(self.collector.run(), name="collecting")
                group.create_task(self.switcher.run(), name="modes")

    async def _is_alone(self, stack: contextlib.AsyncExitStack) -> bool:
        lock = locks.held(self.settings.data_dir / "publish.lock", deadline_seconds=WAIT_SECONDS)
        try:
            await stack.enter_async_context(lock)
        except BusyError:
            return False
        return True

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look())
            group.create_task(self._clean())
        while True:
            self._refused = _NOT_REGISTERED
            metrics.registered.set(False)
            # Where that fails the process ends: a folder that was removed and made anew on the
            # node is seen by a new container alone.
            async with registering.served(self._endpoint, self.server, self._notified):
                try:
                    await registering.gone(self._endpoint)
                finally:
                    self.health.close()
            log.warning("A socket of the plugin has gone; both are made anew")

    async def _look_again(self) -> None:
        """Put back what somebody removes of the files that containers need, for ever."""
        failure = ""
        while True:
            await asyncio.sleep(hooks.AGAIN_SECONDS)
            await self._look()
            try:
                await self.preparer.restore()
                failure = ""
            except GpudeckError as error:
                log.warning("Files of prepared claims are still missing", error=error)
                if not isinstance(error, BusyError) and error.message != failure:
                    failure = error.message
                    self.events.files_missing(failure)

    async def _look(self) -> None:
        """Put back the programs of the hooks if somebody has removed them."""
        before = self._hooks.failure
        await asyncio.to_thread(self._hooks.look)
        if self._hooks.failure not in ("", before):
            self.events.hook_missing(self._hooks.failure)

    async def _clean(self) -> None:
        """Clean up, however long claims keep the plugin before this one at work."""
        while True:
            try:
                return await self.ledger.clean()
            except BusyError as error:
                log.warning("Cannot clean up yet", error=error)

    def _notified(self, accepted: bool, why_not: str) -> None:
        metrics.registered.set(accepted)
        self._refused = "" if accepted else f"the kubelet refused the plugin: {why_not}"
        if accepted:
            log.info("Registered with the kubelet")
        else:
            log.error("The kubelet refused the plugin", error=why_not)
            self.events.registration_failed(why_not)

    async def _pages(self) -> None:
        await serving.serve(
            self.settings,
            self._api,
            hanging=lambda: self._refused,
            text=self.metrics,
            certificate=certificates.self_signed,
        )

    async def metrics(self) -> bytes:
        """Return the text of /metrics: the plugin's own, and that of the adapter of its pod."""
        return await metrics.text() + await self.adapter.metrics()


@contextlib.asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Plugin]:
    """The plugin with its connections, not yet running."""
    async with await client.Client.connect(settings.kubeconfig) as api:
        adapter = adapters.Adapter(settings.adapter_socket)
        try:
            yield Plugin(settings, api, adapter)
        finally:
            await adapter.close()


async def run(settings: Settings) -> None:
    """Run until cancelled. Raises GpudeckError for settings that cannot work."""
    shared.check_node_name(settings)
    if settings.unhealthy_effect not in EFFECTS:
        allowed = " or ".join(EFFECTS)
        raise errors.not_valid("--unhealthy-effect", settings.unhealthy_effect, allowed)
    if not settings.forgotten_seconds >= 1:
        raise errors.InvalidError(
            f"--forgotten-seconds: {settings.forgotten_seconds:g} is not valid; "
            "allowed: at least 1",
            field="--forgotten-seconds",
            allowed="at least 1",
        )
    try:
        async with opened(settings) as plugin:
            await plugin.run()
    except BaseExceptionGroup as group:
        known = group.subgroup(GpudeckError)
        if known is None:
            raise
        raise errors.first(known) from group
