# SPDX-License-Identifier: Apache-2.0
"""What is written, and when nothing is."""

from __future__ import annotations

from gpudeck.agent import describing, planning
from gpudeck.agent.discovering import Inventory
from gpudeck.api import conditions
from gpudeck.api.meta import ObjectMeta, OwnerReference
from gpudeck.api.v1alpha1.physicalgpu import (
    CurrentState,
    DriverType,
    HolderClaim,
    Occupancy,
    PciFacts,
    PhysicalGPU,
    PhysicalGPUStatus,
)

NAME = "node-0-0000-1b-00-0"
NOW = "2026-01-02T03:04:05Z"
EMPTY = Inventory({}, {}, frozenset())


def metadata(**labels: str) -> ObjectMeta:
    owner = OwnerReference(api_version="v1", kind="Node", name="node-0", uid="node-uid")
    return ObjectMeta(name=NAME, labels=labels or {"a": "1"}, owner_references=[owner])


def status(driver: DriverType = DriverType.NVIDIA) -> PhysicalGPUStatus:
    return PhysicalGPUStatus(
        pci_info=PciFacts(address="0000:1b:00.0"),
        current_state=CurrentState(driver_type=driver),
        conditions=[describing.discovered(conditions.TRUE, describing.CARD_FOUND, "There.")],
    )


def known(occupancy: Occupancy | None = None) -> PhysicalGPU:
    found = status()
    found.occupancy = occupancy
    return PhysicalGPU(metadata=metadata(), status=found)


def test_a_new_card_gets_metadata_and_status() -> None:
    assert planning.present(metadata(), status(), None) == planning.Plan(metadata(), status())


def test_nothing_is_written_when_nothing_has_changed() -> None:
    before = known(Occupancy())
    assert before.status is not None
    assert before.status.current_state is not None
    before.status.current_state.uuid = "GPU-of-the-adapter"
    before.metadata.labels = {"a": "1", "of-a-person": "x"}
    assert planning.present(metadata(), status(), before) == planning.NOTHING


def test_only_what_differs_is_written() -> None:
    other_driver = status(DriverType.VFIO)
    assert planning.present(metadata(), other_driver, known()).metadata is None
    assert planning.present(metadata(a="2"), status(), known()) == planning.Plan(metadata(a="2"))


def test_an_object_of_another_owner_is_corrected() -> None:
    before = known()
    before.metadata.owner_references = None
    assert planning.present(metadata(), status(), before).metadata == metadata()


def test_a_lost_card_says_since_when_and_keeps_what_was_known() -> None:
    plan = planning.absent(NAME, EMPTY, known(Occupancy()), NOW)
    assert plan.status is not None
    assert plan.status.lost_since == NOW
    assert plan.status.pci_info == PciFacts(address="0000:1b:00.0")
    condition = conditions.find(plan.status.conditions, conditions.DISCOVERED)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "CardLost")


def test_the_time_of_the_loss_is_kept() -> None:
    before = known(Occupancy())
    first = planning.absent(NAME, EMPTY, before, NOW).status
    assert first is not None
    first.occupancy = Occupancy()
    lost = PhysicalGPU(metadata=metadata(), status=first)
    assert planning.absent(NAME, EMPTY, lost, "2026-12-31T00:00:00Z") == planning.NOTHING


def test_a_returned_card_is_written_whole_again() -> None:
    lost = PhysicalGPU(
        metadata=metadata(), status=planning.absent(NAME, EMPTY, known(Occupancy()), NOW).status
    )
    assert planning.present(metadata(), status(), lost).status == status()


def test_a_card_that_no_controller_has_seen_is_deleted_when_it_is_gone() -> None:
    assert planning.absent(NAME, EMPTY, known(None), NOW).is_delete


def test_a_card_taken_out_of_the_list_is_deleted_unless_a_claim_names_it() -> None:
    unwanted = Inventory({}, {}, frozenset({NAME}))
    assert planning.absent(NAME, unwanted, known(Occupancy()), NOW).is_delete
    held = known(
        Occupancy(
            claims=[HolderClaim(namespace="default", name="c", uid="u", device="gpu-0000-1b-00-0")]
        )
    )
    plan = planning.absent(NAME, unwanted, held, NOW)
    assert plan.status is not None
    condition = conditions.find(plan.status.conditions, conditions.DISCOVERED)
    assert condition is not None
    assert condition.reason == "CardNotSupported"


def test_an_unreadable_card_is_unknown_and_not_lost() -> None:
    seen = Inventory({}, {NAME: "class: Input/output error"}, frozenset({NAME}))
    plan = planning.absent(NAME, seen, known(None), NOW)
    assert plan.status is not None
    assert plan.status.lost_since is None
    condition = conditions.find(plan.status.conditions, conditions.DISCOVERED)
    assert condition is not None
    assert (condition.status, condition.reason) == ("Unknown", "CardUnreadable")
    assert "Input/output error" in condition.message
