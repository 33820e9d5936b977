# SPDX-License-Identifier: Apache-2.0
"""Amounts and counts of a claim that mean nothing, whatever cards there are. Pure.

The API server takes any quantity as an amount of a capacity and any count above zero (Kubernetes
1.37). kube-scheduler then rounds a negative amount up to the least that there is, so that a
claim for -1Gi gets something, and leaves a claim with too many devices waiting for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from gpudeck.api import attributes, quantities
from gpudeck.api.resource import ClaimSpec
from gpudeck.controller.admission import claims
from gpudeck.controller.admission.claims import Wish
from gpudeck.errors import InvalidError

MOST_DEVICES = 32
"""Devices that can be allocated to one claim (resource.k8s.io/v1, AllocationResultsMaxSize)."""
_ALLOWED: dict[str, tuple[Callable[[int], bool], str]] = {
    attributes.MEMORY: (lambda value: value >= quantities.MEBIBYTE, "at least 1Mi, such as 8Gi"),
    attributes.CORES: (
        lambda value: 1 <= value <= 100,
        "1 to 100, the percentage of the card's multiprocessors",
    ),
    attributes.MULTIPROCESSORS: (lambda value: value >= 1, "at least 1"),
}
"""Of each capacity of our devices: what can be asked of it, and how that is said."""


def problems(spec: ClaimSpec, prefix: str, classes: Collection[str]) -> list[InvalidError]:
    """Return what of the claim's requests for one of the classes is no amount or no count."""
    found: list[InvalidError] = []
    least, is_ours = 0, False
    for alternatives in claims.wishes(spec):
        mine = [wish for wish in alternatives if wish.asked.device_class_name in classes]
        for wish in mine:
            found += _of_wish(wish, f"{prefix}.{wish.path}")
        is_ours = is_ours or bool(mine)
        least += min((wish.count for wish in alternatives), default=0)
    if is_ours and least > MOST_DEVICES and not found:
        found.append(too_many(f"{prefix}.devices.requests", f"{least} devices in all"))
    return found


def _of_wish(wish: Wish, where: str) -> Iterator[InvalidError]:
    if wish.count > MOST_DEVICES:
        yield too_many(f"{where}.count", str(wish.count))
    requests = (wish.asked.capacity.requests if wish.asked.capacity else None) or {}
    for name, amount in requests.items():
        field = f"{where}.capacity.requests[{name}]"
        known = _ALLOWED.get(name.removeprefix(f"{attributes.DOMAIN}/"))
        if known is None:
            yield problem(field, "is no capacity of these devices", " or ".join(_ALLOWED))
            continue
        is_allowed, allowed = known
        if not is_allowed(quantities.parse(amount, field)):
            yield problem(field, f"{amount} is not valid", allowed)


def too_many(field: str, count: str) -> InvalidError:
    """Say that no claim can have so many devices, of whatever class."""
    return problem(field, f"{count} is not valid", f"at most {MOST_DEVICES} devices in one claim")


def problem(field: str, what: str, allowed: str) -> InvalidError:
    """Return the refusal of an amount: its field, the value or what is wrong, what is allowed."""
    return InvalidError(
        f"{field}: {what}; allowed: {allowed}",
        reason="InvalidAmount",
        field=field,
        allowed=allowed,
    )
