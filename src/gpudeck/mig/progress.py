# SPDX-License-Identifier: Apache-2.0
"""How far a change of the partitions has come, as it is kept on the Node. Pure.

The record stands in an annotation of the Node and is written together with the labels,
the taint and the drain that belong to it, by one patch: so whoever is killed, and whoever
starts after a reboot, finds on the Node all that is to be gone on with or taken back.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Literal

import msgspec

VERSION = 1


class Phase(enum.StrEnum):
    DRAINING = "Draining"
    """New pods are kept off; pods that hold what is to change are asked to go."""
    PAUSING = "Pausing"
    """The workloads that have the cards open are asked to go."""
    CHANGING = "Changing"
    """Cards are changed."""
    APPROVING = "Approving"
    """A reboot is needed and waits for leave."""
    EMPTYING = "Emptying"
    """All other pods are asked to go before the reboot."""
    REBOOTING = "Rebooting"
    DONE = "Done"
    """Nothing is under way: all is as wanted, or it failed for `reason`."""


class State(enum.StrEnum):
    """Values of the state label."""

    PENDING = "pending"
    REBOOTING = "rebooting"
    SUCCESS = "success"
    FAILED = "failed"


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The annotation, version 1."""

    version: int
    config: str
    digest: str = ""
    """Of what the config says: a config of the same name may come to say something else."""
    phase: Phase
    since: int
    """Begin of the phase, in seconds since 1970."""
    boot: str = ""
    """Boot id of the host when the phase began."""
    paused: Mapping[str, Literal["", "true"]] = {}
    """Labels that were changed so that a workload goes, with what they said before."""
    asked: bool = False
    """Leave was asked for a reboot."""
    rebooted: bool = False
    """The host was rebooted for this change."""
    tried: str = ""
    """What was to be done when it failed; something else is tried anew."""
    reason: str = ""
    """Why it failed; empty where it did not."""
    message: str = ""
    """The same for people; of a reboot, why it is needed."""

    @property
    def is_under_way(self) -> bool:
        """The node is out of service."""
        return self.phase is not Phase.DONE

    @property
    def state(self) -> State:
        """What the state label says."""
        match self.phase:
            case Phase.DONE:
                return State.FAILED if self.reason else State.SUCCESS
            case Phase.APPROVING | Phase.EMPTYING | Phase.REBOOTING:
                return State.REBOOTING
            case _:
                return State.PENDING


_decoder = msgspec.json.Decoder(Record)


def encode(record: Record) -> str:
    """Return the annotation."""
    return msgspec.json.encode(record).decode()


def decode(text: str) -> Record | None:
    """Read the annotation; None where it is not one of ours, for it is then begun anew."""
    try:
        found = _decoder.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if found.version == VERSION else None
