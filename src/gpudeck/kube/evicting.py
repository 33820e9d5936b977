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

_SEVERAL = "more than one PodDisruptionBudget"
"""In the refusal of a pod that several budgets choose, which the API server cannot evict
(status 500, registry/core/pod/storage, 1.37)."""


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

    Raises what else the API server answers: UnavailableError, ForbiddenError.
    """
    body = _Eviction(
        metadata=ObjectMeta(name=pod.name, namespace=pod.namespace),
        delete_options=_Options(preconditions=_Preconditions(uid=pod.uid)),
    )
    path = client.path_of(POD, pod.namespace, pod.name, "eviction")
    try:
        await connection.raw("POST", path, body=msgspec.json.encode(body))
    except (errors.NotFoundError, errors.ConflictError) as error:
        if isinstance(error, errors.NotFoundError) and error.reason == responses.NOT_SERVED:
            raise
        return ""
    except errors.UnavailableError as error:
        if error.reason != responses.DISRUPTION_BUDGET and _SEVERAL not in error.message:
            raise
        # The API server's sentence has no end, and others follow it.
        return error.message.removeprefix(f"POST {path}: ").removesuffix(".") + "."
    return ""
