# SPDX-License-Identifier: Apache-2.0
"""The webhooks of one replica: their caches, their port, and the leader's work for them.

Built by the controller's main module, which tells of changes. Every replica serves with
the certificate of the Secret, taken up in the running TLS context; the leader alone makes
the Secret and the registrations.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping

from gpudeck import errors, logs
from gpudeck.api.core import Node, Secret
from gpudeck.api.meta import Meta
from gpudeck.api.resource import DeviceClass
from gpudeck.api.resources import MUTATING_WEBHOOKS, SECRET, VALIDATING_WEBHOOKS
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.controller.admission import certificates, naming, registration, reviews
from gpudeck.controller.admission.fleet import Fleet
from gpudeck.controller.events import Events
from gpudeck.controller.settings import Settings
from gpudeck.kube import serving, webhooks
from gpudeck.kube.caching import Cache
from gpudeck.kube.client import Client
from gpudeck.kube.queueing import Queue
from gpudeck.kube.watching import Change

_log = logs.get(__name__)
_KEY = "webhooks"


class Webhooks:
    """Port 0 in the settings: no port, no Secret, no registration."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        classes: Cache[GPUClass],
        device_classes: Cache[DeviceClass],
        report: Events,
    ) -> None:
        self._port = settings.webhook_port
        self._classes, self._device_classes = classes.objects, device_classes.objects
        self._fleet = Fleet(default_mode=settings.default_mode)
        self._names: naming.Names | None = None
        self._listeners: list[Callable[[], None]] = []
        namespace = settings.namespace or client.namespace
        self._secrets = Cache(
            client,
            SECRET,
            Secret,
            namespace=namespace,
            field_selector=f"metadata.name={registration.SECRET_NAME}",
        )
        chosen = f"metadata.name={registration.NAME}"
        self._registrations = [
            Cache(client, resource, Meta, field_selector=chosen)
            for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
        ]
        self._queue = Queue("webhooks")
        self._registration = registration.Registration(
            client, namespace, self.names, left_out=report.classes_left_out
        )
        self._reviews = reviews.Reviews(
            client, self.names, self._fleet, refuse_impossible=settings.refuse_impossible
        )
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._certified = asyncio.Event()
        self._secrets.subscribe(self._secret_changed)
        for each in self._registrations:
            each.subscribe(lambda _: self._queue.add(_KEY))

    def subscribe(self, registered: Callable[[], None]) -> None:
        """Call back when `registered` may answer otherwise than before."""
        self._listeners.append(registered)

    def registered(self, name: str) -> bool | None:
        """Whether pods that ask for the extended resource are rewritten; the leader knows.

        None where no webhook is served, and for a name that is left to device plugins.
        """
        if self._port == 0 or self._fleet.may_be_plugins(name):
            return None
        return name in self._registration.rewritten

    def gpu_changed(self, change: Change[PhysicalGPU]) -> None:
        """Take over a change of a card."""
        self._fleet.change(change.old, change.new)

    def node_changed(self, change: Change[Node]) -> None:
        """Take over a change of a Node."""
        before = self._fleet.has_plugins
        self._fleet.node_changed(change.key, change.new)
        if self._fleet.has_plugins != before:
            self.classes_changed()
            self._tell()

    def classes_changed(self) -> None:
        """Forget what was made of the classes: one of them changed, or a DeviceClass."""
        self._names = None
        self._queue.add(_KEY)

    def names(self) -> naming.Names:
        """Return what pods and claims may ask for now."""
        if self._names is None:
            classes: Mapping[str, GPUClass] = dict(self._classes)
            self._names = naming.names_of(
                classes, self._device_classes, may_be_plugins=self._fleet.may_be_plugins
            )
        return self._names

    async def run(self) -> None:
        """Serve for ever, from when there is a certificate."""
        if self._port == 0:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._secrets.run())
            await self._certified.wait()
            await webhooks.serve(self._port, self._reviews.pages(), self._tls)

    async def lead(self) -> None:
        """Keep Secret and registrations, for ever."""
        if self._port == 0:
            return
        self._queue.add(_KEY)
        async with asyncio.TaskGroup() as group:
            for each in self._registrations:
                group.create_task(each.run())
            await self._queue.work(self._register)

    async def _register(self, key: str) -> float:
        before = self._registration.rewritten
        again_seconds = await self._registration.reconcile(key)
        if self._registration.rewritten != before:
            self._tell()
        return again_seconds

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def _secret_changed(self, change: Change[Secret]) -> None:
        data = (change.new.data if change.new else None) or {}
        pem = data.get(certificates.KEY, b"") + data.get(certificates.CERTIFICATE, b"")
        # Whatever is wrong with it: what was loaded before still serves; the leader makes another.
        self._queue.add(_KEY)
        if not pem:
            return
        try:
            serving.load(self._tls, pem)
        except errors.UnavailableError as error:
            _log.warning("Certificate not usable", secret=change.key, error=error)
        else:
            self._certified.set()
