# SPDX-License-Identifier: Apache-2.0
"""The adapter's answer to Prepare as a CDI spec, or as the error that it tells.

Pure. Between the two protocols: the adapter speaks of cards, the runtime of devices.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.cdi import rendering, spec
from gpudeck.dra.allocations import Reference
from gpudeck.errors import GpudeckError, TerminalError, UnavailableError


def refused(error: adapter_pb2.Error) -> GpudeckError:
    """The adapter's refusal as an error of ours."""
    kind = UnavailableError if error.retryable else TerminalError
    return kind(error.message, reason=error.reason or None)


def spec_of(
    claim: Reference, devices: Sequence[str], answer: adapter_pb2.PreparedClaim | None
) -> bytes:
    """The CDI spec of a claim. Raises what the adapter refused, or UnavailableError if it
    left out the claim or one of its devices.
    """
    if answer is not None and answer.HasField("error"):
        raise refused(answer.error)
    answered = answer.devices if answer is not None else ()
    prepared = {each.name: _edits(each.edits) for each in answered}
    wanted = dict.fromkeys(devices)
    missing = [name for name in wanted if prepared.get(name, spec.NOTHING) == spec.NOTHING]
    if answer is None or missing:
        raise UnavailableError(
            f"claim {claim}: the adapter's answer lacks {', '.join(missing) or 'the claim'}",
            reason="AdapterAnswerIncomplete",
        )
    return rendering.render(
        claim.uid, {name: prepared[name] for name in wanted}, _edits(answer.shared)
    )


def _edits(found: adapter_pb2.ContainerEdits) -> spec.ContainerEdits:
    return spec.ContainerEdits(
        env=tuple(found.env),
        device_nodes=tuple(_device_node(each) for each in found.device_nodes),
        mounts=tuple(
            spec.Mount(
                host_path=each.host_path,
                container_path=each.container_path,
                options=tuple(each.options),
            )
            for each in found.mounts
        ),
        hooks=tuple(
            spec.Hook(
                hook_name=each.hook_name,
                path=each.path,
                args=tuple(each.args),
                env=tuple(each.env),
            )
            for each in found.hooks
        ),
        additional_gids=tuple(found.additional_gids),
    )


def _device_node(found: adapter_pb2.DeviceNode) -> spec.DeviceNode:
    is_known = found.type in ("c", "b")
    return spec.DeviceNode(
        path=found.path,
        host_path=found.host_path or None,
        type=found.type or None,
        major=found.major if is_known else None,
        minor=found.minor if is_known else None,
        permissions=found.permissions or None,
    )
