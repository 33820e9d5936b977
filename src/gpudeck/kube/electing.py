# SPDX-License-Identifier: Apache-2.0
"""One of several replicas leads, by a Lease of coordination.k8s.io/v1.

The controller runs its reconcilers as `lead`. Deadlines use the loop's clock
and never compare clocks of two machines: another's lease has expired when it
did not change for its duration while we looked. Every request has a timeout well
below the renewal deadline, so a hung API server cannot make two leaders. Times
written are UTC (metav1.MicroTime).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import Awaitable, Callable
from typing import Any

from gpudeck import errors, finishing, logs
from gpudeck.api.core import Lease, LeaseSpec
from gpudeck.api.resources import LEASE
from gpudeck.kube import client, pacing

RELEASE_SECONDS = 2.0
"""A leader that stops gives up its lease, but does not wait longer than this for it."""
_log = logs.get(__name__)


class Elector:
    """Takes part in the election of one Lease.

    A lease not renewed for `renew_seconds` is given up by its holder; after
    `lease_seconds` another may take it; `retry_seconds` lie between two tries.
    """

    def __init__(
        self,
        connection: client.Client,
        *,
        name: str,
        namespace: str,
        identity: str,
        lease_seconds: float = 15,
        renew_seconds: float = 10,
        retry_seconds: float = 2,
    ) -> None:
        self.is_leader = False
        self.holder = ""
        """Who held the lease when it was last seen."""
        self._client = connection
        self._name, self._namespace, self._identity = name, namespace, identity
        self._lease_seconds, self._renew_seconds = lease_seconds, renew_seconds
        self._retry_seconds = retry_seconds
        self._seen: LeaseSpec | None = None
        self._seen_at = 0.0
        self._version: str | None = None
        self._log = _log.bind(lease=f"{namespace}/{name}", identity=identity)

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, then run `lead` while it is held.

        Returns or raises what `lead` does. LeadershipLostError when the lease is lost:
        by then `lead` is cancelled. Cancelled itself, it ends `lead`, then releases.
        """
        await self._acquire()
        self.is_leader = True
        self._log.info("Leading")
        leading = asyncio.ensure_future(lead())
        keeping = asyncio.create_task(self._keep(), name="lease")
        try:
            await asyncio.wait({leading, keeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leading_ended = leading.done()
            lost = keeping.done()
            try:
                await finishing.ended(leading, keeping)
            finally:
                self.is_leader = False
                if not lost:
                    await self._release()
        if leading_ended:
            await leading
        else:
            await keeping

    async def _acquire(self) -> None:
        # Watching the Lease would tell of a release sooner, at the price of a connection.
        while not await self._tried():  # noqa: ASYNC110 (what is awaited is in the server)
            await asyncio.sleep(pacing.jittered(self._retry_seconds))

    async def _keep(self) -> None:
        """Renew until it fails for too long; then raise errors.LeadershipLostError."""
        loop = asyncio.get_running_loop()
        renewed_at = loop.time()
        while True:
            await asyncio.sleep(self._retry_seconds)
            started = loop.time()
            if await self._tried():
                renewed_at = started
            elif self.holder not in ("", self._identity):
                self._lose(f"it is held by {self.holder}")
            elif loop.time() - renewed_at + self._retry_seconds > self._renew_seconds:
                self._lose(f"it could not be renewed for {self._renew_seconds:.0f} s")

    def _lose(self, why: str) -> None:
        self._log.error("Leadership lost", why=why)
        raise errors.LeadershipLostError(f"lease {self._namespace}/{self._name}: {why}")

    async def _tried(self) -> bool:
        """Try once to take or renew the lease; whether we hold it now."""
        try:
            async with asyncio.timeout(self._renew_seconds / 4):
                return await self._take()
        except errors.GpudeckError as error:
            self._log.info("Lease not renewed", reason=error.reason, error=error)
        except TimeoutError:
            self._log.info("Lease not renewed", reason="Timeout")
        return False

    async def _take(self) -> bool:
        try:
            lease = await self._client.get(LEASE, self._name, Lease, namespace=self._namespace)
        except errors.NotFoundError:
            return await self._create()
        self._observe(lease)
        seen = lease.spec or LeaseSpec()
        if self.holder not in ("", self._identity) and not self._has_expired(seen):
            return False
        changed = self._spec(seen)
        patch = {"metadata": {"resourceVersion": self._version}, "spec": changed}
        self._observe(await self._patch(patch))
        return self.holder == self._identity

    async def _create(self) -> bool:
        body = {
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": self._spec(LeaseSpec()),
        }
        self._observe(await self._client.create(LEASE, body, Lease))
        return self.holder == self._identity

    async def _patch(self, patch: dict[str, Any]) -> Lease:
        return await self._client.merge_patch(
            LEASE, self._name, patch, Lease, namespace=self._namespace
        )

    def _observe(self, lease: Lease) -> None:
        spec = lease.spec or LeaseSpec()
        if spec != self._seen:
            self._seen, self._seen_at = spec, asyncio.get_running_loop().time()
        self.holder = spec.holder_identity or ""
        self._version = lease.metadata.resource_version

    def _has_expired(self, spec: LeaseSpec) -> bool:
        seconds = spec.lease_duration_seconds or self._lease_seconds
        return asyncio.get_running_loop().time() - self._seen_at > seconds

    def _spec(self, seen: LeaseSpec) -> dict[str, Any]:
        now = _micro_time()
        spec: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._lease_seconds)),
            "renewTime": now,
        }
        if seen.holder_identity != self._identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (seen.lease_transitions or 0) + 1
        return spec

    async def _release(self) -> None:
        """Let the next one lead at once; if that fails, the lease expires by itself."""
        patch = {
            "metadata": {"resourceVersion": self._version},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _micro_time()},
        }
        with contextlib.suppress(errors.GpudeckError, TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._patch(patch)
        self._log.info("Released")


def _micro_time() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
