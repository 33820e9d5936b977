# SPDX-License-Identifier: Apache-2.0
"""Keep the webhooks registered, with no more reach than the classes there are, and trusted.

The leader's work. The chart makes both configurations empty, so that they go with it; the
entries are applied here. Each names the very resources and classes that it is about in
its match conditions: the API server asks us about nothing else, so a controller that is
down holds up no other pod. The one entry that must not be passed by (a pod that stayed as
it is would wait for ever) fails closed, and is there only as long as such a class is.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable
from typing import TypeVar

from gpudeck import errors, logs
from gpudeck.api import labels
from gpudeck.api.admission import (
    CREATE,
    UPDATE,
    ClientConfig,
    MatchCondition,
    RuleWithOperations,
    ServiceReference,
    Webhook,
    WebhookConfiguration,
)
from gpudeck.api.core import Secret
from gpudeck.api.meta import ObjectMeta
from gpudeck.api.resources import MUTATING_WEBHOOKS, SECRET, VALIDATING_WEBHOOKS, Resource
from gpudeck.controller import metrics
from gpudeck.controller.admission import certificates, naming
from gpudeck.controller.admission.naming import Names
from gpudeck.kube.client import Client

NAME = "gpudeck"
"""Of both configurations."""
SERVICE = "gpu-controller"
SECRET_NAME = "gpu-controller-webhook"
AGAIN_SECONDS = 3600.0
"""How often is looked without any cause: a certificate grows old without a word."""
REWRITE, PODS, CLAIMS, CLASSES = "/rewrite-pods", "/pods", "/claims", "/classes"
"""Paths of the pages."""
_DEVICES = "object.spec.?spec.orValue(object.spec).?devices"
"""In CEL, of a claim or of a template."""
_BYPASSES = "has(object.spec.nodeName) && object.spec.?resourceClaims.orValue([]).size() > 0"
"""Says in CEL that a pod with claims names its node itself; whose claims they are is looked up."""
LONGEST = 90_000
"""Characters of names in one condition: the API server (1.37) compiles no expression of more than
100,000, so many classes need several entries."""
MOST = 1_000_000
"""Characters of all names: etcd (3.7) keeps no object of more than 1.5 MiB."""
T = TypeVar("T")
_PATIENT_SECONDS, _SECONDS = 5, 2
_log = logs.get(__name__)


class Registration:
    """Brings the Secret and both configurations in line; called by one queue of the leader."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        names: Callable[[], Names],
        *,
        left_out: Callable[[int, int], None] = lambda count, total: None,
    ) -> None:
        """`left_out` is told of how many of how many classes there is no room, when it changes."""
        self.rewritten: frozenset[str] = frozenset()
        """The extended resource names whose pods the API server asks us to rewrite."""
        self._client = client
        self._namespace = namespace
        self._names = names
        self._left_out = left_out
        self._told = 0

    async def reconcile(self, _: str) -> float:
        """Write what differs, and say after how many seconds to look again."""
        trusted = await self._certificate()
        names = self._fitting()
        where = Where(self._namespace, trusted)
        await self._keep(MUTATING_WEBHOOKS, mutating(where, names))
        self.rewritten = frozenset(names.rewritten)
        await self._keep(VALIDATING_WEBHOOKS, validating(where, names))
        return AGAIN_SECONDS

    def _fitting(self) -> Names:
        names = self._names()
        found = naming.fitting(names, MOST)
        count = len(names.classes) - len(found.classes)
        if count != self._told:
            self._told = count
            self._left_out(count, len(names.classes))
        return found

    async def _certificate(self) -> bytes:
        """Return the authorities to trust, after a new certificate was written if one is due."""
        found = await self._made_by_chart(SECRET, SECRET_NAME, Secret, self._namespace)
        now = datetime.datetime.now(datetime.UTC)
        held = found.data or {}
        wanted = certificates.renewed(held, service_names(self._namespace), now)
        if wanted is None:
            return held[certificates.AUTHORITY]
        meta = ObjectMeta(
            name=SECRET_NAME,
            namespace=self._namespace,
            # Somebody else's write in between is a conflict, and then looked at anew.
            resource_version=found.metadata.resource_version,
        )
        body = Secret(metadata=meta, data=wanted)
        await self._client.apply(SECRET, body, Secret, manager=labels.MANAGER_CONTROLLER)
        _log.info("Wrote the certificate of the webhooks", secret=SECRET_NAME)
        metrics.writes.labels("Secret").inc()
        return wanted[certificates.AUTHORITY]

    async def _keep(self, resource: Resource, wanted: list[Webhook]) -> None:
        found = await self._made_by_chart(resource, NAME, WebhookConfiguration)
        if (found.webhooks or []) == wanted:
            return
        body = WebhookConfiguration(metadata=ObjectMeta(name=NAME), webhooks=wanted)
        await self._client.apply(
            resource, body, WebhookConfiguration, manager=labels.MANAGER_CONTROLLER
        )
        metrics.writes.labels(resource.kind).inc()
        _log.info("Wrote webhooks", kind=resource.kind, entries=len(wanted))

    async def _made_by_chart(
        self, resource: Resource, name: str, type_: type[T], namespace: str | None = None
    ) -> T:
        try:
            return await self._client.get(resource, name, type_, namespace=namespace)
        except errors.NotFoundError as error:
            raise errors.UnavailableError(
                f"{resource.kind} {name} is not there; `helm upgrade` of gpudeck makes it again",
                reason="ObjectOfChartMissing",
            ) from error


def service_names(namespace: str) -> tuple[str, ...]:
    """Return the DNS names under which the API server reaches the Service."""
    return (f"{SERVICE}.{namespace}.svc", f"{SERVICE}.{namespace}.svc.cluster.local")


class Where:
    """How the API server reaches a page, and whom it trusts there."""

    def __init__(self, namespace: str, trusted: bytes) -> None:
        self._namespace, self._trusted = namespace, trusted
        self.account = f"system:serviceaccount:{namespace}:{SERVICE}"

    def page(self, path: str) -> ClientConfig:
        """Return the address of a page."""
        service = ServiceReference(namespace=self._namespace, name=SERVICE, path=path, port=443)
        return ClientConfig(service=service, ca_bundle=self._trusted)


def mutating(where: Where, names: Names) -> list[Webhook]:
    """Return the entries for pods that must be rewritten; none if no class needs it."""
    found = []
    for place, asked in enumerate(_parts(names.rewritten)):
        entry = _entry("rewrite.pods", place, where.page(REWRITE), [_rule("", "pods")])
        entry.failure_policy = "Fail"
        entry.match_conditions = [_condition("asks-for-a-class", _asks_for(asked))]
        # Another webhook may put the resource into the pod after us.
        entry.reinvocation_policy = "IfNeeded"
        entry.side_effects = "NoneOnDryRun"
        entry.timeout_seconds = _PATIENT_SECONDS
        found.append(entry)
    return found


def validating(where: Where, names: Names) -> list[Webhook]:
    """Return the entries that only judge; the API server goes on without us where we are away."""
    found = []
    rule = _rule("resource.k8s.io", "resourceclaims", "resourceclaimtemplates")
    for place, classes in enumerate(_parts(names.classes) or [[]]):
        entry = _entry("claims", place, where.page(CLAIMS), [rule])
        asks = _claims_of(classes)
        about = asks if place else f"{_configures(_DEVICES)} || {asks}"
        entry.match_conditions = [_condition("asks-us", about)]
        found.append(entry)
    found.append(_of_classes(where))
    for place, asked in enumerate(_parts(names.asked) or ([[]] if names.classes else [])):
        entry = _entry("pods", place, where.page(PODS), [_rule("", "pods")])
        asks = _asks_for(asked)
        about = asks if place else f"{asks} || {_BYPASSES}"
        entry.match_conditions = [_condition("asks-for-a-class", about)]
        found.append(entry)
    return found


def _of_classes(where: Where) -> Webhook:
    rules = [
        _rule(labels.GROUP, "gpuclasses", update=True),
        _rule("resource.k8s.io", "deviceclasses", update=True),
    ]
    entry = _entry("classes", 0, where.page(CLASSES), rules)
    ours = f"request.userInfo.username != {json.dumps(where.account)}"
    about = f"request.resource.resource == 'gpuclasses' || {_configures('object.?spec')}"
    entry.match_conditions = [
        _condition("not-our-own", ours),
        # What was let in once must stay deletable: the last finalizer goes by an update.
        _condition("changes", "oldObject == null || object.?spec != oldObject.?spec"),
        _condition("about-us", about),
    ]
    return entry


def _parts(names: Iterable[str]) -> list[list[str]]:
    """Share out the names over as many conditions as they need; none for no names."""
    found: list[list[str]] = []
    left = 0
    for name in sorted(names):
        size = naming.written(name)
        if size > left:
            found.append([])
            left = LONGEST
        found[-1].append(name)
        left -= size
    return found


def _condition(name: str, expression: str) -> MatchCondition:
    return MatchCondition(name=name, expression=expression)


def _entry(name: str, place: int, page: ClientConfig, rules: list[RuleWithOperations]) -> Webhook:
    return Webhook(
        name=f"{name}-{place}.{labels.GROUP}" if place else f"{name}.{labels.GROUP}",
        client_config=page,
        rules=rules,
        failure_policy="Ignore",
        side_effects="None",
        timeout_seconds=_SECONDS,
        admission_review_versions=["v1"],
    )


def _rule(group: str, *plurals: str, update: bool = False) -> RuleWithOperations:
    return RuleWithOperations(
        operations=[CREATE, UPDATE] if update else [CREATE],
        api_groups=[group],
        api_versions=["*"] if group == labels.GROUP else ["v1"],
        resources=list(plurals),
        scope="*",
    )


def _asks_for(names: Iterable[str]) -> str:
    """Say in CEL that a container of the pod asks for one of the resources."""
    listed = json.dumps(sorted(names))
    asks = f"has(c.resources) && c.resources.?limits.orValue({{}}).exists(name, name in {listed})"
    every = "object.spec.containers + object.spec.?initContainers.orValue([])"
    return f"({every}).exists(c, {asks})"


def _claims_of(classes: Iterable[str]) -> str:
    """Say in CEL that a claim or template asks for one of the classes."""
    listed = json.dumps(sorted(classes))
    return (
        f"{_DEVICES}.?requests.orValue([]).exists(r, ((has(r.exactly) ? [r.exactly] : []) + "
        f"r.?firstAvailable.orValue([])).exists(one, one.deviceClassName in {listed}))"
    )


def _configures(owner: str) -> str:
    """Say in CEL that one of the owner's opaque configurations is for our driver."""
    return (
        f"{owner}.?config.orValue([]).exists(c, has(c.opaque) && "
        f"c.opaque.driver == {json.dumps(labels.DRIVER)})"
    )
