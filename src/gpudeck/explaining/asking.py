# SPDX-License-Identifier: Apache-2.0
"""What a pod asks for: claims by name or template, and extended resources.

A name that nothing in the cluster knows becomes a Problem, with the nearest name
that exists. Pure.
"""

from __future__ import annotations

import collections
import dataclasses
import difflib
import enum
from collections.abc import Iterable

from gpudeck.api import conditions, labels, quantities
from gpudeck.api.core import Container, Pod, PodResourceClaim
from gpudeck.api.resource import ClaimSpec, DeviceRequest
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.errors import InvalidError
from gpudeck.explaining import partitioning
from gpudeck.explaining.world import World

_PLUGIN_DOMAIN = "nvidia.com/"
_BY_CLASS = "deviceclass.resource.kubernetes.io/"
"""Prefix by which any DeviceClass is an extended resource (KEP-5004)."""


_NOUNS = {gpuclass.WHOLE: "card", gpuclass.PARTITION: "partition", gpuclass.SHARE: "share"}


class Trouble(enum.StrEnum):
    """Why what a pod names cannot be had at all."""

    CLAIM_NOT_FOUND = "ClaimNotFound"
    TEMPLATE_NOT_FOUND = "TemplateNotFound"
    CLASS_NOT_FOUND = "ClassNotFound"
    CLASS_NOT_READY = "ClassNotReady"
    UNKNOWN_RESOURCE = "UnknownResource"


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something that the pod names and that is not there."""

    reason: Trouble
    sentence: str
    claim: str = ""
    """Key of the claim that names it, once that is made."""


@dataclasses.dataclass(frozen=True)
class Option:
    """Cards of one class. `selectors` are CEL of the claim itself."""

    class_name: str
    count: int = 1
    selectors: tuple[str, ...] = ()
    amounts: tuple[tuple[str, int], ...] = ()
    """Least amounts of capacities; of a shared device, what is taken."""


@dataclasses.dataclass(frozen=True)
class Ask:
    """One thing that the pod asks for: any one of the options will do."""

    text: str
    options: tuple[Option, ...] = ()
    resource: str = ""
    """The extended resource by which it asks, "" for a claim."""
    claim: str = ""
    """The claim's key, once there is one."""
    count: int = 1


@dataclasses.dataclass
class Asked:
    """All that a pod asks for."""

    asks: list[Ask] = dataclasses.field(default_factory=list)
    problems: list[Problem] = dataclasses.field(default_factory=list)
    claims: list[str] = dataclasses.field(default_factory=list)
    """Keys of the claims that are made, allocated or not."""


def is_plugin_resource(name: str) -> bool:
    """Whether NVIDIA's device plugin uses such a name."""
    rest = name.removeprefix(_PLUGIN_DOMAIN)
    return rest != name and (rest in ("gpu", "gpu.shared") or rest.startswith("mig-"))


def is_by_dra(pod: Pod, resource: str) -> bool:
    """Whether the scheduler made a claim for an extended resource of the pod."""
    made = pod.status.extended_resource_claim_status if pod.status else None
    return made is not None and made.covers(resource)


def extended_resources(pod: Pod) -> dict[str, int]:
    """Return the extended resources of a pod, as kube-scheduler (1.37) adds them up.

    That is the sum of its containers and sidecars, or what an init container and the sidecars
    that were started before it have, where that is more.
    """
    spec = pod.spec
    beside, most = collections.Counter[str](), collections.Counter[str]()
    for container in (spec.init_containers if spec else None) or ():
        together = beside + _of_container(container)
        if container.restart_policy == "Always":
            beside = together
        most |= together
    for container in (spec.containers if spec else None) or ():
        beside += _of_container(container)
    return dict(most | beside)


def _of_container(container: Container) -> collections.Counter[str]:
    wanted = container.resources
    both = {**((wanted.requests if wanted else None) or {})}
    both.update((wanted.limits if wanted else None) or {})
    found = collections.Counter[str]()
    for name, amount in both.items():
        if "/" in name and ".kubernetes.io/" not in name.replace(_BY_CLASS, ""):
            try:
                found[name] = quantities.parse(str(amount))
            except InvalidError:
                found[name] = 0
    return found


def of(pod: Pod, world: World) -> Asked:
    """Return what the pod asks for, and what of it is not there."""
    asked = Asked()
    for position, entry in enumerate((pod.spec.resource_claims if pod.spec else None) or ()):
        _claim(pod, entry, f"spec.resourceClaims[{position}]", world, asked)
    made = pod.status.extended_resource_claim_status if pod.status else None
    if made is not None:
        asked.claims.append(f"{pod.metadata.namespace}/{made.resource_claim_name}")
    for name, count in extended_resources(pod).items():
        claim = asked.claims[-1] if is_by_dra(pod, name) else ""
        _resource(name, count, world, asked, claim=claim)
    for ask in asked.asks:
        _check_classes(ask, world, asked)
    return asked


def _claim(pod: Pod, entry: PodResourceClaim, field: str, world: World, asked: Asked) -> None:
    namespace = pod.metadata.namespace or ""
    name = entry.resource_claim_name or _generated(pod, entry.name)
    key = f"{namespace}/{name}"
    if name and key in world.claims:
        asked.claims.append(key)
        spec = world.claims[key].spec
    elif entry.resource_claim_name:
        known = [each for each in world.claims if each.startswith(f"{namespace}/")]
        sentence = f"{field}.resourceClaimName: claim {key} does not exist{near(key, known)}"
        asked.problems.append(Problem(Trouble.CLAIM_NOT_FOUND, sentence))
        return
    else:
        key = f"{namespace}/{entry.resource_claim_template_name}"
        template = world.templates.get(key)
        if template is None:
            known = [each for each in world.templates if each.startswith(f"{namespace}/")]
            sentence = (
                f"{field}.resourceClaimTemplateName: template {key} does not exist"
                f"{near(key, known)}"
            )
            asked.problems.append(Problem(Trouble.TEMPLATE_NOT_FOUND, sentence))
            return
        spec = template.spec.spec if template.spec else None
    asked.asks += list(_requests(spec, key, world))


def _generated(pod: Pod, entry: str) -> str:
    """Return the claim that was made from a template for this entry, "" if none is yet."""
    made = (pod.status.resource_claim_statuses if pod.status else None) or []
    return next((each.resource_claim_name or "" for each in made if each.name == entry), "")


def _requests(spec: ClaimSpec | None, key: str, world: World) -> Iterable[Ask]:
    for request in (spec.devices.requests if spec and spec.devices else None) or ():
        options = tuple(_options(request))
        classes = list(dict.fromkeys(each.class_name for each in options))
        count = min((each.count for each in options), default=1)
        nouns = {_noun_of_class(each, world) for each in classes}
        noun = nouns.pop() if len(nouns) == 1 else "device"
        text = f"{_counted(count, noun)} of class {' or '.join(classes)}"
        yield Ask(text, options, claim=key, count=count)


def _options(request: DeviceRequest) -> Iterable[Option]:
    exact = [request.exactly] if request.exactly else []
    for each in [*exact, *(request.first_available or ())]:
        selectors = tuple(one.cel.expression for one in each.selectors or () if one.cel)
        wanted = (each.capacity.requests if each.capacity else None) or {}
        amounts = tuple((name, quantities.parse(amount)) for name, amount in sorted(wanted.items()))
        yield Option(each.device_class_name, each.count or 1, selectors, amounts)


def _resource(name: str, count: int, world: World, asked: Asked, *, claim: str) -> None:
    classes = classes_by_resource(world)
    offered = _offered_by_plugins(world)
    class_name = classes.get(name, "")
    if name.startswith(_BY_CLASS):
        class_name = name.removeprefix(_BY_CLASS)
    if class_name or name in offered:
        noun = _noun_of_class(class_name, world) if class_name else _noun(name)
        text = f"{_counted(count, noun)} by {name}"
        if class_name and class_name not in name:
            text += f" (class {class_name})"
        options = (Option(class_name, count),) if class_name else ()
        asked.asks.append(Ask(text, options, resource=name, claim=claim, count=count))
        return
    known = [*classes, *offered]
    close = partitioning.makeable(name, world) or near(name, known)
    if is_plugin_resource(name) or name.startswith(f"{labels.GROUP}/") or close:
        sentence = f"resources.limits: {name} is offered by no class and no node{close}"
        asked.problems.append(Problem(Trouble.UNKNOWN_RESOURCE, sentence, claim))


def classes_by_resource(world: World) -> dict[str, str]:
    """Return the class that each extended resource name stands for: of two the newest."""
    found: dict[str, str] = {}
    ordered = sorted(
        world.device_classes.values(), key=lambda each: each.metadata.creation_timestamp or ""
    )
    for each in ordered:
        name = each.spec.extended_resource_name if each.spec else None
        if name:
            found[name] = each.metadata.name
    for gpu_class in world.gpu_classes.values():
        found.setdefault(served_name(gpu_class), gpu_class.metadata.name)
    found.pop("", None)
    return found


def served_name(gpu_class: GPUClass) -> str:
    """Return the extended resource name by which pods get the class.

    "" where they do not: another class has the name, or neither scheduler nor webhook serves it.
    The name that is wanted where nobody has told yet.
    """
    status = gpu_class.status
    ready = conditions.find(status.conditions if status else None, conditions.READY)
    if status is not None and ready is not None:
        if ready.status == conditions.TRUE:
            return status.extended_resource_name or ""
        if ready.reason == conditions.EXTENDED_RESOURCE_CONFLICT:
            return ""
    return gpuclass.asked_name(gpu_class)


def _offered_by_plugins(world: World) -> set[str]:
    offered: set[str] = set()
    for node in world.nodes.values():
        capacity = (node.status.capacity if node.status else None) or {}
        offered.update(name for name in capacity if is_plugin_resource(name))
    for gpu in world.gpus.values():
        told = (gpu.status.extended_resources if gpu.status else None) or ()
        offered.update(each.resource for each in told)
    return offered


def _check_classes(ask: Ask, world: World, asked: Asked) -> None:
    """Report a class that is not there; with several options one that is there will do."""
    missing = [
        each.class_name for each in ask.options if each.class_name not in world.device_classes
    ]
    if not missing or len(missing) < len(ask.options):
        return
    if ask.resource in _offered_by_plugins(world) or "deviceclasses" in world.unreadable:
        return
    for name in missing:
        gpu_class = world.gpu_classes.get(name)
        if gpu_class is not None:
            ready = conditions.find(
                gpu_class.status.conditions if gpu_class.status else None, conditions.READY
            )
            why = f": {ready.message}" if ready is not None and ready.message else " yet"
            sentence = f"GPUClass {name} is not ready{why}"
            asked.problems.append(Problem(Trouble.CLASS_NOT_READY, sentence, ask.claim))
        else:
            sentence = f"class {name} does not exist{near(name, world.device_classes)}"
            asked.problems.append(Problem(Trouble.CLASS_NOT_FOUND, sentence, ask.claim))


def near(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?" for the nearest of the known names, "" if none is near."""
    names = sorted(set(known))
    found = [each for each in names if each.startswith(f"{name}-")]
    found = found or difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    return f"; did you mean {found[0]}?" if found else ""


def _noun_of_class(name: str, world: World) -> str:
    """What a class gives; a card where only CEL says so."""
    found = world.gpu_classes.get(name)
    kinds = (found.spec.devices if found else None) or [gpuclass.WHOLE]
    return _NOUNS.get(kinds[0], "device") if len(kinds) == 1 else "device"


def _noun(resource: str) -> str:
    """What a resource of a device plugin is, by its name."""
    if resource.startswith(f"{_PLUGIN_DOMAIN}mig-"):
        return "partition"
    return "share" if resource.endswith(".shared") else "card"


def _counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"
