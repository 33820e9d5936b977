# SPDX-License-Identifier: Apache-2.0
"""Ask the API server to evict a pod: it goes in its own time, if no PodDisruptionBudget keeps it.

Used by the controller, which alone has the right. A pod is named with its UID, so that one
that was made anew under the same name is left alone. Nothing is ever deleted by force here.
"""

from __future__ import annotations

import msgspec

from gpudeck import errors
from gpudeck.api.meta import ObjectMeta, Wire
from gpudeck.api.resources import POD
from gpudeck.kube import client, responses

_KEEPING = ("more than one PodDisruptionBudget", "failed calling webhook")
"""In refusals with the status 500 that are not the server's own: of a pod that several budgets
choose (registry/core/pod/storage), and of one whose webhook is away (admission/plugin/webhook,
1.37)."""


class Pod(msgspec.Struct, frozen=True, order=True):
    """A pod that cannot be taken for another."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class _Preconditions(Wire):
    uid: str = ""


class _Options(Wire):
    preconditions: _Preconditions


class _Eviction(Wire, omit_defaults=False):
    metadata: ObjectMeta
    delete_options: _Options
    api_version: str = "policy/v1"
    kind: str = "Eviction"


async def evict(connection: client.Client, pod: Pod) -> str:
    """Ask for the eviction; returns why it cannot be now, empty if the pod goes or is gone.

    Budgets are not all that keeps a pod: a webhook may refuse or be away, and in a namespace that
    ends nothing is made (403), evictions neither (plugin/namespace/lifecycle, 1.37). All of that
    may pass, so it is a reason like a budget's. Raises UnavailableError where the server fails.
    """
    body = _Eviction(
        metadata=ObjectMeta(name=pod.name, namespace=pod.namespace),
        delete_options=_Options(preconditions=_Preconditions(uid=pod.uid)),
    )
    path = client.path_of(POD, pod.namespace, pod.name, "eviction")
    try:
        await connection.raw("POST", path, body=msgspec.json.encode(body))
    except errors.GpudeckError as error:
        if _is_gone(error):
            return ""
        if isinstance(error, errors.RetryableError) and not _is_kept(error):
            raise
        # The API server's sentence has no end, and others follow it.
        return error.message.removeprefix(f"POST {path}: ").removesuffix(".") + "."
    return ""


def _is_gone(error: errors.GpudeckError) -> bool:
    """Whether there is no such pod, or another under its name."""
    if isinstance(error, errors.NotFoundError):
        return error.reason != responses.NOT_SERVED
    return isinstance(error, errors.ConflictError)


def _is_kept(error: errors.RetryableError) -> bool:
    """Whether budgets, or a webhook that is away, keep the pod."""
    is_budget = error.reason == responses.DISRUPTION_BUDGET
    return is_budget or any(each in error.message for each in _KEEPING)
