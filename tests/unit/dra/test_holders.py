# SPDX-License-Identifier: Apache-2.0
"""What of a claim goes when it is given back."""

from __future__ import annotations

from gpudeck.dra import holders
from gpudeck.dra.allocations import HeldDevice
from gpudeck.dra.checkpoint import Content, Entry, State

PARTITION = HeldDevice(name="mig-0000-1b-00-0-3g40gb-9-4")
OTHER = HeldDevice(name="mig-0000-1b-00-0-3g40gb-9-0")
SHARE = HeldDevice(name="share-0000-1b-00-0", share_id="s1")


def content(**others: Entry) -> Content:
    mine = Entry(state=State.COMPLETED, devices=[PARTITION, OTHER, SHARE])
    return Content(claims={"mine": mine, **others})


def test_a_partition_that_another_claim_has_too_stays() -> None:
    looker = Entry(state=State.RECOVERED, devices=[PARTITION, SHARE])
    assert holders.alone(content(looker=looker), "mine") == [OTHER, SHARE]


def test_a_claim_that_is_gone_or_only_looks_on_keeps_nothing() -> None:
    gone = Entry(state=State.RELEASED, devices=[PARTITION])
    looker = Entry(
        state=State.COMPLETED, devices=[HeldDevice(name=PARTITION.name, admin_access=True)]
    )
    assert holders.alone(content(gone=gone, looker=looker), "mine") == [PARTITION, OTHER, SHARE]
