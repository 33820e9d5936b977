# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the config, on the Node: a condition for programs, Events for people.

The condition DevicePluginConfigured is False while the config that was chosen is not
the one in force, or something of it cannot be offered; it names the field. It is ours
alone (server-side apply), so the kubelet's conditions stay as they are; when the mode is over
the controller takes it away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from gpudeck import errors
from gpudeck.api import conditions, labels
from gpudeck.api.meta import Meta
from gpudeck.api.resources import NODE
from gpudeck.deviceplugin import metrics, offering
from gpudeck.kube import recording
from gpudeck.kube.client import Client
from gpudeck.kube.queueing import Queue
from gpudeck.pluginconfig import selecting

IN_FORCE = "ConfigInForce"
NO_EFFECT = "PluginConfigWithoutEffect"
_KEY = "condition"
SETTLING_SECONDS = 30.0
"""What cannot be offered is an Event once it lasts so long: at each start partitions are still to
be made, and MPS daemons to be started."""
_CHOSEN = {
    selecting.Origin.LABEL: f"the label {selecting.LABEL} of the Node chose it",
    selecting.Origin.GROUP: "the group of the node chose it",
    selecting.Origin.DEFAULT: "it is the default",
    selecting.Origin.FALLBACK: "nobody chose another one",
    selecting.Origin.FILE: "it is the plugin's file",
}


class Said(offering.Problem, frozen=True):
    """The condition: `reason` and `message` with its status."""

    is_true: bool = True


def condition(
    selected: selecting.Selected, problems: Iterable[offering.Problem], waits: Sequence[str] = ()
) -> Said:
    """What the condition says of a config and of what the node made of it. Pure.

    `waits`: of each device that is given to nobody before a pod has ended, which pod.
    """
    said = _in_force(selected, problems)
    more = f" Given to nobody now: {len(waits)}. {waits[0]}" if waits else ""
    return msgspec.structs.replace(said, message=said.message + more)


def _in_force(selected: selecting.Selected, problems: Iterable[offering.Problem]) -> Said:
    name = selected.name
    if selected.problem is not None:
        kept = f"The config {name} stays in force." if name else "No config is in force."
        return Said(
            reason=selected.problem.reason,
            message=f"{selected.problem.message}. {kept}",
            is_true=False,
        )
    found = list(dict.fromkeys(problems))
    if found:
        told = errors.numbered([each.message.rstrip(".") for each in found])
        return Said(reason=found[0].reason, message=f"{told}.", is_true=False)
    held = f"The config {name} is in force; {_CHOSEN[selected.origin]}."
    none = "No config is chosen; the plugin's settings alone count."
    return Said(reason=IN_FORCE, message=held if name else none)


class Reporter:
    """Tells the Node; `run` and the recorder's must run. Without an API server nothing is told."""

    def __init__(
        self,
        api: Client | None,
        node: str,
        recorder: recording.Recorder | None,
        *,
        settling_seconds: float = SETTLING_SECONDS,
    ) -> None:
        self._api = api
        self._recorder = recorder
        self._node = node
        self._settling_seconds = settling_seconds
        self._settling: dict[offering.Problem, asyncio.TimerHandle] = {}
        self._about = recording.of_node(node)
        self._told: frozenset[offering.Problem] = frozenset()
        self._wanted: Said | None = None
        self._since = ""
        self._queue = Queue("node condition", limit_seconds=30.0)

    def show(
        self,
        selected: selecting.Selected,
        problems: tuple[offering.Problem, ...],
        waits: Sequence[str] = (),
    ) -> None:
        """Say what holds now. Each thing is told once while it lasts."""
        said = condition(selected, problems, waits)
        metrics.config_valid.set(selected.problem is None)
        notes = [offering.Problem(reason=NO_EFFECT, message=each) for each in selected.config.notes]
        if selected.problem is not None:
            told = condition(selected, ())
            notes.append(offering.Problem(reason=told.reason, message=told.message))
        self._told &= {*problems, *notes}
        for each in notes:
            self._tell(each)
        self._settle(problems)
        if said != self._wanted:
            if self._wanted is None or said.is_true != self._wanted.is_true:
                self._since = recording.timestamp()
            self._wanted = said
            self._queue.add(_KEY)

    def renew(self) -> None:
        """Say it again, on a Node that was made anew."""
        self._queue.add(_KEY)

    def _settle(self, problems: tuple[offering.Problem, ...]) -> None:
        """Tell what lasts."""
        for each in set(self._settling).difference(problems):
            self._settling.pop(each).cancel()
        loop = asyncio.get_running_loop()
        for each in problems:
            if each not in self._told and each not in self._settling:
                timer = loop.call_later(self._settling_seconds, self._tell, each)
                self._settling[each] = timer

    def _tell(self, problem: offering.Problem) -> None:
        self._settling.pop(problem, None)
        if problem not in self._told and self._recorder is not None:
            self._recorder.record(
                self._about, reason=problem.reason, message=problem.message, warning=True
            )
        self._told |= {problem}

    async def run(self) -> None:
        """Keep the condition, for ever."""
        await self._queue.work(self._reconcile)

    async def _reconcile(self, _key: str) -> None:
        said = self._wanted
        if self._api is None or said is None:
            return
        condition = {
            "type": conditions.PLUGIN_CONFIGURED,
            "status": "True" if said.is_true else "False",
            "reason": said.reason,
            "message": said.message,
            "lastHeartbeatTime": recording.timestamp(),
            "lastTransitionTime": self._since,
        }
        body = {"metadata": {"name": self._node}, "status": {"conditions": [condition]}}
        try:
            await self._api.apply(
                NODE, body, Meta, manager=labels.MANAGER_DEVICE_PLUGIN, subresource="status"
            )
        except errors.NotFoundError as error:
            # The Node may come later, and no other event would let us try again.
            raise errors.UnavailableError(error.message, reason=error.reason) from error
