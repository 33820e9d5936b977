# SPDX-License-Identifier: Apache-2.0
"""The pages of the webhooks: what is asked about is decoded, judged, and answered.

Every replica serves them, from the caches that it keeps anyway. The one write is the
ResourceClaimTemplate that a rewritten pod names; the API server's own policies judge that
write, so `usage` of a class holds for such pods as for everybody.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from gpudeck import errors, nesting
from gpudeck.api import deviceconfigs
from gpudeck.api.admission import AdmissionRequest, ResourceClaimTemplate, ReviewedPod
from gpudeck.api.meta import Meta
from gpudeck.api.resource import ClaimSpec, DeviceClass, ResourceClaim
from gpudeck.api.resources import DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.controller.admission import (
    amounts,
    bypassing,
    claims,
    pods,
    registration,
    rewriting,
    sizes,
)
from gpudeck.controller.admission.fleet import Fleet
from gpudeck.controller.admission.naming import Names
from gpudeck.controller.gpuclass import deviceclass
from gpudeck.kube import webhooks
from gpudeck.kube.client import Client
from gpudeck.kube.webhooks import Answer

T = TypeVar("T")
_DENIED = re.compile(" denied (?:the )?request: ")
"""What stands before the sentence in the API server's refusal: by a policy, or by a webhook."""


class Reviews:
    """Answers questions. `refuse_impossible` False makes what no card could serve a warning."""

    def __init__(
        self, client: Client, names: Callable[[], Names], fleet: Fleet, *, refuse_impossible: bool
    ) -> None:
        self._client = client
        self._names = names
        self._fleet = fleet
        self._refuse_impossible = refuse_impossible

    def pages(self) -> dict[str, webhooks.Decide]:
        """Return the functions by path."""
        return {
            registration.REWRITE: self.rewrite,
            registration.PODS: self.judge_pod,
            registration.CLAIMS: self.judge_claim,
            registration.CLASSES: self.judge_class,
        }

    async def rewrite(self, asked: AdmissionRequest) -> Answer:
        """Give a pod its claims, and make the templates of them in its namespace.

        UnavailableError if this replica does not know yet what the pod asks for.
        """
        pod, names = _decoded(asked, ReviewedPod), self._names()
        done = rewriting.rewrite(pod.spec, names.rewritten)
        # The rewritten pod asks by its claims alone, so the page for pods never sees it.
        impossible = pods.impossible(pod.spec, names.rewritten, self._fleet)
        verdict = self._verdict(list(done.problems), impossible)
        if verdict.problems:
            return verdict
        if not done.patch and not pods.asks_for(pod.spec, names.asked):
            # The leader registered a class that has not come by our watch. Let in as it is, the
            # pod would wait for ever; refused, it is made again.
            raise errors.UnavailableError(
                "the class that the pod asks for is not known here yet; try again",
                reason="ClassUnknown",
            )
        for template in done.templates:
            refused = await self._make(template, asked)
            if refused is not None:
                return Answer(problems=(refused,))
        return Answer(patch=done.patch, warnings=verdict.warnings)

    async def _make(
        self, template: rewriting.Template, asked: AdmissionRequest
    ) -> errors.GpudeckError | None:
        """Make a template unless it is there; return the refusal of a policy."""
        body = template.body()
        try:
            await self._create(body, asked, dry_run=bool(asked.dry_run))
        except errors.AlreadyExistsError:
            # It was let in once; whether it would be today, a dry run of its twin tells.
            usage = template.gpu_class.spec.usage
            if usage is None:
                return None
            body["metadata"] = {"generateName": "gpudeck-"}
            return await self._refusal(body, asked)
        except errors.ForbiddenError as error:
            return _policy(error)
        return None

    async def _refusal(
        self, body: dict[str, object], asked: AdmissionRequest
    ) -> errors.GpudeckError | None:
        try:
            await self._create(body, asked, dry_run=True)
        except errors.ForbiddenError as error:
            return _policy(error)
        return None

    async def _create(
        self, body: dict[str, object], asked: AdmissionRequest, *, dry_run: bool
    ) -> None:
        await self._client.create(
            RESOURCE_CLAIM_TEMPLATE, body, Meta, namespace=asked.namespace, dry_run=dry_run
        )

    async def judge_pod(self, asked: AdmissionRequest) -> Answer:
        """Refuse a pod that asks by `resources.limits` for more than any node has.

        One that names its node is told that it passes the scheduler by.
        """
        spec, names = _decoded(asked, ReviewedPod).spec, self._names()
        verdict = self._verdict([], pods.impossible(spec, names.asked, self._fleet))
        if not spec.node_name or verdict.problems:
            return verdict
        is_by_plugin = spec.node_name in self._fleet.plugin_nodes
        said = [] if is_by_plugin else bypassing.by_limits(spec, names.asked)
        said += await bypassing.by_claims(self._client, spec, asked.namespace or "", names.classes)
        return Answer(warnings=(*verdict.warnings, *said))

    async def judge_claim(self, asked: AdmissionRequest) -> Answer:
        """Refuse a claim or template with wrong parameters, or that no card could serve."""
        if asked.resource.resource == RESOURCE_CLAIM.plural:
            spec, prefix = _decoded(asked, ResourceClaim).spec, "spec"
        else:
            template = _decoded(asked, ResourceClaimTemplate).spec
            spec, prefix = template.spec if template else None, "spec.spec"
        spec, known = spec or ClaimSpec(), self._names().classes
        wrong = claims.config_problems(spec, prefix) + amounts.problems(spec, prefix, known)
        return self._verdict(wrong, claims.impossible(spec, prefix, known, self._fleet))

    def _verdict(
        self, wrong: list[errors.InvalidError], impossible: list[errors.InvalidError]
    ) -> Answer:
        if self._refuse_impossible:
            return Answer(problems=(*wrong, *impossible))
        return Answer(problems=tuple(wrong), warnings=tuple(map(str, impossible)))

    async def judge_class(self, asked: AdmissionRequest) -> Answer:
        """Judge a DeviceClass's parameters, or a GPUClass by a dry run of its DeviceClass."""
        if asked.resource.resource == DEVICE_CLASS.plural:
            found = _decoded(asked, DeviceClass)
            configs = (found.spec.config if found.spec else None) or ()
            return Answer(
                problems=tuple(
                    deviceconfigs.all_problems(
                        (each.opaque, f"spec.config[{index}]") for index, each in enumerate(configs)
                    )
                )
            )
        gpu_class = _decoded(asked, GPUClass)
        try:
            target = deviceclass.wanted(gpu_class, "")
            target.metadata = msgspec.structs.replace(
                target.metadata, name="", generate_name="gpudeck-", owner_references=None
            )
            await self._client.create(DEVICE_CLASS, target, DeviceClass, dry_run=True)
        except errors.InvalidError as error:
            return Answer(problems=(error,))
        return Answer(warnings=tuple(sizes.warnings(gpu_class.spec, self._fleet)))


def _decoded(asked: AdmissionRequest, type_: type[T]) -> T:
    try:
        return nesting.decode(msgspec.json.Decoder(type_), asked.object)
    except msgspec.DecodeError as error:
        raise errors.UnsupportedError(
            f"{asked.resource.resource} {asked.namespace}/{asked.name} cannot be read: {error}",
            reason="ObjectUnreadable",
        ) from error


def _policy(error: errors.ForbiddenError) -> errors.ForbiddenError:
    """Return the sentence alone: the user never made the template that the rest speaks of."""
    sentence = _DENIED.split(error.message, maxsplit=1)[-1]
    return errors.ForbiddenError(sentence, reason=error.reason)
