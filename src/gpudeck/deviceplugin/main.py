# SPDX-License-Identifier: Apache-2.0
"""`gpudeck device-plugin`: the process that offers a node's cards as extended resources.

Its parts tell it what they see (`_read` cards, `_chosen` config), and `_stand` makes of
both what the kubelet is shown. The library runs in supervised children; while it, the
API server or both are away, the kubelet is answered from what was seen last.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpudeck import errors, logs
from gpudeck.cdi import hooks, plugins
from gpudeck.deviceplugin import (
    answering,
    asking,
    configuring,
    daemons,
    leaving,
    metrics,
    occupying,
    offering,
    publishing,
    reporting,
    serving,
    specs,
    standing,
    status,
)
from gpudeck.deviceplugin.settings import Settings
from gpudeck.host import certificates, files, locks
from gpudeck.host import root as host
from gpudeck.kube import recording
from gpudeck.kube import serving as pages
from gpudeck.kube.client import Client
from gpudeck.pluginconfig import model, selecting
from gpudeck.pluginconfig import settings as configured
from gpudeck.vendors import (
    calling,
    contract,
    heeding,
    records,
    registry,
    remembering,
    supervisor,
)

log = logs.get(__name__)

HELD_SECONDS = 2.0
"""How often the kubelet is asked what pods hold, while devices wait for that."""
RETRY_SECONDS = 0.5
SAID_SECONDS = 5.0
"""What keeps an offer from being changed is said on the Node once it lasts so long."""
LOCK_FILE = "device-plugin.lock"
WAIT_SECONDS = 60.0
"""How often a plugin says that it waits for another one."""
_HANGING_SECONDS = 60.0


class Process:
    """The parts of the process and what connects them."""

    def __init__(self, settings: Settings, api: Client | None) -> None:
        self._settings = settings
        self._api = api
        program = calling.program(settings)
        self._root = host.Root(settings.host_root, on_node=settings.host_root_on_node)
        self._vendor = registry.load(settings.vendor).vendor(program.settings)
        self._supervisor = supervisor.Supervisor(
            self._vendor,
            program,
            self._read,
            timing=supervisor.Timing(poll=settings.poll_seconds, read=settings.call_seconds),
            remembered=remembering.Remembering(self._root, settings.vendor),
            heeded=heeding.of(settings),
        )
        self._recorder = None
        if api is not None:
            self._recorder = recording.Recorder(api, "device-plugin", instance=settings.node_name)
        self._reporter = reporting.Reporter(api, settings.node_name, self._recorder)
        self._configuring = configuring.Configuring(
            settings, api, self._chosen, appeared=self._reporter.renew
        )
        self._publisher = None
        if api is not None:
            self._publisher = publishing.Publisher(
                api,
                settings.node_name,
                vendor=settings.vendor,
                pod_resources=settings.pod_resources,
            )
        self._plugins = serving.Plugins(settings.plugins_dir, self._handed_out)
        self._inventory: records.Inventory | None = None
        self._seen = offering.Seen()
        self._selected: selecting.Selected | None = None
        self._wake = asyncio.Event()
        self._standing_since: float | None = None
        """While a change of what is offered goes on."""
        self._group = asyncio.TaskGroup()
        self._changing: set[str] = set()
        """Addresses of the cards that are being changed."""
        self._unchanged: dict[str, offering.Problem] = {}
        """Why a card is not as it is to be, by address."""
        self._hooks = hooks.Hooks(settings.cdi_hook, settings.data_dir)
        self._why: dict[tuple[str, str], str] = {}
        """Why devices are withheld."""
        self._failure = ""
        """Why what is offered could not be changed the last time."""
        self._failing_since = 0.0

    async def run(self) -> None:
        """Run every part until one of them fails."""
        async with contextlib.AsyncExitStack() as stack:
            await self._alone(stack)
            try:
                await asyncio.to_thread(
                    plugins.remove_leftovers, self._settings.cdi_root, self._settings.data_dir
                )
            except errors.GpudeckError as error:
                log.warning("Half-written files of a plugin before stay", error=error)
            async with asyncio.TaskGroup() as outer:
                # Both to the very end, for to leave is to act on cards, once nobody has any.
                outer.create_task(self._supervisor.run(), name="cards")
                outer.create_task(self._plugins.run(), name="kubelet")
                try:
                    await self._serve()
                except asyncio.CancelledError:
                    await self._leave()
                    raise

    async def _alone(self, stack: contextlib.AsyncExitStack) -> None:
        """Wait for the plugin of another group, or another version, to end on this node.

        Both would take the sockets of the resources from each other.
        """
        folder = self._settings.data_dir
        try:
            await asyncio.to_thread(host.Root().make_directory, folder.as_posix())
            while True:
                lock = locks.held(folder / LOCK_FILE, deadline_seconds=WAIT_SECONDS)
                with contextlib.suppress(errors.BusyError):
                    await stack.enter_async_context(lock)
                    return
                log.info("Waiting for the device plugin before this one to end")
        except errors.GpudeckError as error:
            log.warning("Cannot tell whether another device plugin is on the node", error=error)

    async def _serve(self) -> None:
        async with self._group as group:
            group.create_task(self._configuring.run(), name="config")
            group.create_task(self._stand_again(), name="standing")
            group.create_task(self._reporter.run(), name="condition")
            if self._recorder is not None:
                group.create_task(self._recorder.run(), name="events")
            if self._publisher is not None:
                group.create_task(self._publisher.run(), name="cards' status")
            group.create_task(self._pages(), name="serving")

    async def _leave(self) -> None:
        """Take all back if the node's mode is over; within the time that a pod has to end."""
        if self._api is None or not self._configuring.was_in_mode:
            return  # Whoever runs the node without that label knows nothing of modes.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(leaving.LEAVING_SECONDS):
                found = await leaving.known(self._api, self._settings)
                if found is None or not leaving.is_over(found):
                    return
                inventory = self._inventory or records.Inventory()
                if await leaving.is_held(self._settings, self._plugins, inventory):
                    log.info("Pods hold devices, so nothing is taken back")
                    return
                await leaving.leave(inventory, self._supervisor, self._publisher)

    def _handed_out(self) -> None:
        if self._publisher is not None:
            self._publisher.handed_out()

    async def _pages(self) -> None:
        await pages.serve(
            self._settings,
            self._api,
            hanging=self._hanging,
            text=metrics.text,
            certificate=certificates.self_signed,
        )

    def _hanging(self) -> str:
        since = self._standing_since
        if since is not None and time.monotonic() - since > _HANGING_SECONDS:
            return "What is offered has not followed a change."
        # A folder that was removed and made anew on the node is seen by a new container alone.
        failing = (each for each in self._plugins.served.values() if each.failure)
        late = (
            each for each in failing if time.monotonic() - each.failing_since > _HANGING_SECONDS
        )
        return next((f"{each.name} is not served: {each.failure}" for each in late), "")

    def _read(self, inventory: records.Inventory) -> None:
        self._inventory = inventory
        self._seen = offering.remember(self._seen, inventory)
        self._wake.set()

    def _chosen(self, selected: selecting.Selected) -> None:
        self._selected = selected
        self._wake.set()

    async def _stand_again(self) -> None:
        """Stand anew after each change, and from time to time."""
        pause: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            self._wake.clear()
            if self._inventory is None or self._selected is None:
                continue
            self._standing_since = time.monotonic()
            pause = await self._try(self._inventory, self._selected)
            self._standing_since = None

    async def _try(self, inventory: records.Inventory, selected: selecting.Selected) -> float:
        """Stand, or stay as it is; return the seconds until to try again if nothing changes."""
        try:
            await self._stand(inventory, selected)
        except errors.GpudeckError as error:
            if error.message != self._failure:
                log.warning("What is offered stays for now", reason=error.reason, error=error)
                self._failure, self._failing_since = error.message, time.monotonic()
            self._publish()
            if time.monotonic() - self._failing_since >= SAID_SECONDS:
                problem = offering.Problem(reason=error.reason, message=error.message)
                self._reporter.show(selected, (problem,))
            return RETRY_SECONDS
        self._failure = ""
        return HELD_SECONDS if self._plugins.standing.withheld else hooks.AGAIN_SECONDS

    def _publish(self) -> None:
        """Say of the cards what holds now."""
        if self._publisher is not None and self._inventory is not None and self._selected:
            known = status.Known(
                inventory=self._inventory,
                standing=self._plugins.standing,
                why=tuple(sorted(self._why.items())),
                config=self._selected.name,
            )
            self._publisher.show(known)

    async def _stand(self, inventory: records.Inventory, selected: selecting.Selected) -> None:
        """Offer what cards and config say.

        Raises GpudeckError while the kubelet does not tell what pods hold, or the disk takes no
        CDI file: what is new then waits, and what no longer holds has been taken back.
        """
        config = configured.completed(selected.config, self._settings)
        way = configuring.way(config.flags, config.imex, self._settings)
        offer = offering.offer(inventory, self._seen, config)
        before = self._plugins.standing
        # First take back, then ask: the kubelet cannot hand out meanwhile what was asked for.
        self._plugins.show(standing.taken_back(before, offer))
        found = await asyncio.to_thread(self._prepare, offer, way, inventory.driver)
        flags = config.flags.plugin
        is_other = standing.ids(before.offer) != standing.ids(offer)
        held: occupying.Held = {}
        if is_other or before.withheld or daemons.concern(offer, inventory):
            held = await asking.held(self._settings, self._plugins, offer.names)
        waits = occupying.withheld(offer, held)
        steps = daemons.steps(offer, inventory, held=held, withheld=waits)
        for address, action in steps.items():
            self._change(address, action)
        unchanged = [each for address, each in self._unchanged.items() if address in steps]
        pending = await asyncio.to_thread(specs.pending, self._vendor, offer)
        withheld = waits | daemons.unready(offer, pending, held)
        self._plugins.show(
            standing.Standing(
                offer=offer,
                way=way,
                ready=found.ready,
                policy=flags.shared_devices_allocation_policy or model.AllocationPolicy.DISTRIBUTED,
                withheld=tuple(sorted(withheld)),
            )
        )
        self._why = withheld
        self._publish()
        problems = (*offer.problems, *found.problems, *self._troubles(), *unchanged)
        problems += tuple(_waiting(pending))
        self._reporter.show(selected, problems, tuple(waits.values()))
        self._tell(before, withheld)

    def _change(self, address: str, action: contract.Action) -> None:
        """Change a card beside all else; the inventory that comes of it makes us stand anew."""
        if address not in self._changing:
            self._changing.add(address)
            self._group.create_task(self._act(address, action), name="change of a card")

    async def _act(self, address: str, action: contract.Action) -> None:
        try:
            await self._supervisor.act(address, action)
            self._unchanged.pop(address, None)
        except errors.GpudeckError as error:
            why = offering.Problem(reason=error.reason, message=error.message, address=address)
            if why != self._unchanged.get(address):
                log.warning("A card was not changed", card=address, error=error)
            self._unchanged[address] = why
            await asyncio.sleep(HELD_SECONDS)
        finally:
            self._changing.remove(address)
            self._wake.set()

    def _tell(self, before: standing.Standing, withheld: dict[tuple[str, str], str]) -> None:
        for key in sorted(set(withheld) - set(before.withheld)):
            log.info("A device waits", resource=key[0], why=withheld[key])

    def _prepare(
        self, offer: offering.Offer, way: answering.Way, driver: contract.DriverState
    ) -> specs.Found:
        """Find out what containers need and have it on disk; blocks, so it runs in a thread."""
        folder = self._settings.cdi_root
        self._hooks.look()
        own = folder / plugins.file_name(answering.CDI_CLASS)
        found = specs.find(
            self._vendor,
            offer,
            way,
            driver=driver,
            hook_path=self._hooks.path,
            root=self._root,
            before=_content(own),
        )
        if model.CDI.isdisjoint(way.strategies):
            return found
        for name, content in found.files:
            path = folder / name
            if _content(path) == content:
                continue
            host.Root().make_directory(folder.as_posix())
            files.write_atomic(path, content, mode=0o644)
            log.info("Wrote a CDI spec", path=path)
        return found

    def _troubles(self) -> Iterator[offering.Problem]:
        """What is amiss with the files of the plugin itself."""
        for each in self._plugins.served.values():
            if each.failure:
                why = f"{each.name} is not served to the kubelet: {each.failure}"
                yield offering.Problem(reason="SocketUnavailable", message=why)
        if self._hooks.failure:
            why = f"Containers get their cards without the links of hooks: {self._hooks.failure}"
            yield offering.Problem(reason="HookMissing", message=why)


def _waiting(pending: Mapping[str, str]) -> list[offering.Problem]:
    return [offering.Problem(reason="MpsNotReady", message=each) for each in pending.values()]


def _content(path: Path) -> bytes | None:
    try:
        return files.read(path)
    except errors.NotFoundError:
        return None


async def run(settings: Settings) -> None:
    """Run until cancelled. Raises GpudeckError for settings that cannot work."""
    configuring.check(settings)
    try:
        if not settings.node_name:
            await Process(settings, None).run()
            return
        async with await Client.connect(settings.kubeconfig) as api:
            await Process(settings, api).run()
    except* errors.GpudeckError as group:
        raise errors.first(group) from group
