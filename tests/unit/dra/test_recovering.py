# SPDX-License-Identifier: Apache-2.0
"""What a lost checkpoint is rebuilt from."""

from __future__ import annotations

from typing import Any

import msgspec

from gpudeck.api import resource
from gpudeck.cdi import rendering, spec
from gpudeck.dra import recovering
from gpudeck.dra.allocations import HeldDevice
from gpudeck.dra.checkpoint import Content, Entry, State


def as_it_is(device: HeldDevice) -> HeldDevice:
    return device


EDITS = spec.ContainerEdits(env=("A=b",))


def claim(uid: str, device: str, **changes: Any) -> resource.ResourceClaim:
    result = {"request": "r", "driver": "gpu.deckhouse.io", "pool": "n", "device": device}
    status = {
        "allocation": {"devices": {"results": [{**result, **changes}]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}],
    }
    meta = {"name": f"c-{uid}", "namespace": "t", "uid": uid}
    return msgspec.convert({"metadata": meta, "status": status}, resource.ResourceClaim)


def test_specs_hold_their_devices_without_being_prepared() -> None:
    rendered = rendering.render("u1", {"gpu-a": EDITS})
    found = recovering.from_specs({"u1": rendered, "u2": b"garbage"})
    assert list(found) == ["u1"]
    assert found["u1"].state is State.RECOVERED
    assert found["u1"].devices == [HeldDevice(name="gpu-a")]
    assert found["u1"].spec == rendered.decode()


def test_claims_in_use_on_this_node_are_added_and_named() -> None:
    content = Content(claims=recovering.from_specs({"u1": rendering.render("u1", {"a": EDITS})}))
    elsewhere, foreign = claim("u3", "c", pool="m"), claim("u4", "d", driver="x")
    idle = claim("u5", "e")
    assert idle.status
    idle.status.reserved_for = None
    found = [claim("u1", "a"), claim("u2", "b"), elsewhere, foreign, idle]
    recovering.add_claims(content, found, "n", as_it_is)
    assert {uid: str(each) for uid, each in content.claims.items()} == {
        "u1": "t/c-u1",
        "u2": "t/c-u2",
    }
    assert content.claims["u1"].spec is not None
    assert content.claims["u2"].spec is None


def test_a_claim_that_waits_for_a_device_does_not_take_it_from_the_one_that_has_it() -> None:
    content = Content(claims=recovering.from_specs({"u1": rendering.render("u1", {"a": EDITS})}))
    recovering.add_claims(content, [claim("u2", "a"), claim("u1", "a")], "n", as_it_is)
    assert list(content.claims) == ["u1"]


def test_what_was_prepared_meanwhile_stays_as_it_is() -> None:
    entry = Entry(state=State.COMPLETED, devices=[HeldDevice(name="a", requests=["r"])])
    content = Content(claims={"u1": entry})
    recovering.add_claims(content, [claim("u1", "a")], "n", as_it_is)
    assert content.claims["u1"] is entry
    assert entry.devices[0].requests == ["r"]


def test_partitions_without_a_size_get_the_one_that_their_card_tells() -> None:
    name = "mig-0000-1b-00-0-3g40gb-9-4"
    whole = Entry(state=State.COMPLETED, devices=[HeldDevice(name="gpu-0000-1c-00-0")])
    part = Entry(state=State.RECOVERED, devices=[HeldDevice(name=name)])
    content = Content(claims={"whole": whole, "part": part})
    recovering.place(content, lambda device: msgspec.structs.replace(device, size=4))
    assert content.claims["part"].devices == [HeldDevice(name=name, size=4)]
    assert content.claims["whole"] is whole
    assert part.devices == [HeldDevice(name=name)]
