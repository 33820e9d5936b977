# SPDX-License-Identifier: Apache-2.0
"""The steps between two modes: what holds in every state, and that each state comes to an end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec
import pytest

from gpudeck.api import labels
from gpudeck.controller.modes import deciding
from gpudeck.controller.modes.deciding import Phase, Step, View, Workload
from gpudeck.controller.modes.holders import Holder
from gpudeck.kube import evicting

DRA, PLUGIN = labels.MODES
DEFAULT = PLUGIN


def labelled(*, wish: str | None = None, active: str | None = None) -> dict[str, str]:
    known = {labels.VENDOR: "nvidia", labels.MODE: wish, labels.ACTIVE_MODE: active}
    return {key: text for key, text in known.items() if text is not None}


def holder(mode: str = PLUGIN, name: str = "a") -> Holder:
    return Holder(evicting.Pod("t", name, f"uid-{name}"), mode)


def states() -> Iterator[View]:
    """Every state of a node that matters, also those that no controller makes."""
    loads = (Workload(), Workload(("p",)), Workload(("p",), True))
    for wish, active, taint in itertools.product(
        (None, DRA, PLUGIN, "mps"), (None, DRA, PLUGIN, "mps"), (None, DRA, PLUGIN, "mps")
    ):
        for held, claims in itertools.product((None, DRA, PLUGIN), ((), ("t/c",))):
            for dra, plugin in itertools.product(loads, repeat=2):
                for offers_dra, offers_plugin in itertools.product(((), ("x",)), repeat=2):
                    yield View(
                        labels=labelled(wish=wish, active=active),
                        taint=taint,
                        holders=(holder(held),) if held else (),
                        claims=claims,
                        workloads={DRA: dra, PLUGIN: plugin},
                        offers={DRA: offers_dra, PLUGIN: offers_plugin},
                        devices={DRA: len(offers_dra) or None, PLUGIN: len(offers_plugin) or None},
                    )


def other(mode: str) -> str:
    return PLUGIN if mode == DRA else DRA


def _holds(held: tuple[Holder, ...], mode: str) -> bool:
    return any(each.mode == mode for each in held)


def after(view: View, step: Step) -> View:
    """What a node does of itself after a step: pods that are to go do, labels have their effect."""
    known = {key: text for key, text in view.labels.items() if key != labels.ACTIVE_MODE}
    if step.active is not None:
        known[labels.ACTIVE_MODE] = step.active
    gone = set(step.evict)
    left = tuple(each for each in view.holders if each.pod not in gone)
    running = {mode: step.active == mode for mode in labels.MODES}
    return View(
        labels=known,
        taint=step.taint,
        holders=left,
        # Claims are given back by the mode that prepared them alone.
        claims=() if running[DRA] and not _holds(left, DRA) else view.claims,
        workloads={
            mode: Workload(("p",), True) if running[mode] else Workload() for mode in labels.MODES
        },
        offers={mode: ("x",) if running[mode] else () for mode in labels.MODES},
        devices={mode: 1 if running[mode] else None for mode in labels.MODES},
    )


def test_no_card_is_ever_in_both_modes_or_taken_from_whoever_holds_it() -> None:
    for view in states():
        step = deciding.decide(view, DEFAULT)
        target = deciding.wanted(view.labels, DEFAULT)
        old = other(target)
        before = view.labels.get(labels.ACTIVE_MODE)
        is_held = _holds(view.holders, old) or (old == DRA and bool(view.claims))
        if before == old and step.active != old:
            assert not is_held, view
        if before not in labels.MODES and step.active == target:
            assert not is_held, view
            assert (view.workloads[old].pods, view.offers[old]) == ((), ()), view
        if before == old:
            assert step.active in (old, None), view
        if step.evict:
            assert (before, view.taint, step.taint) == (old, target, target), view


def test_new_pods_are_kept_away_until_the_node_is_settled_and_no_longer() -> None:
    for view in states():
        step = deciding.decide(view, DEFAULT)
        is_new = view.labels.get(labels.ACTIVE_MODE) not in labels.MODES and view.taint is None
        is_waited_for = not step.phase.is_settled and not (is_new and step.active is None)
        assert (step.taint is not None) == is_waited_for, view
        assert step.message, view


@pytest.mark.parametrize("wish", [None, DRA, PLUGIN, "mps"])
def test_every_state_comes_to_an_end_that_is_the_wanted_one(wish: str | None) -> None:
    for view in states():
        if view.labels.get(labels.MODE) != wish or is_foreign(view):
            continue
        seen, target = view, deciding.wanted(view.labels, DEFAULT)
        for _ in range(12):
            step = deciding.decide(seen, DEFAULT)
            seen = after(seen, step)
        assert step.phase.is_settled, view
        # Without a wish or a mode that is known, what is held says what was in force.
        was_known = wish != "mps" or view.labels.get(labels.ACTIVE_MODE) in labels.MODES
        assert step.active == target or not was_known, view
        assert deciding.decide(seen, DEFAULT) == step, view


def is_foreign(view: View) -> bool:
    """Whether pods have cards of a node that is no concern of ours yet."""
    is_new = view.taint is None and view.labels.get(labels.ACTIVE_MODE) not in labels.MODES
    return is_new and _holds(view.holders, PLUGIN) and not view.workloads[PLUGIN].pods


def test_a_change_of_mind_at_each_step_turns_back() -> None:
    for start, steps in itertools.product(labels.MODES, range(8)):
        seen = View(labels=labelled(wish=other(start), active=start), holders=(holder(start),))
        for _ in range(steps):
            seen = after(seen, deciding.decide(seen, DEFAULT))
        known = {**seen.labels, labels.MODE: start}
        seen = msgspec.structs.replace(seen, labels=known)
        for _ in range(12):
            step = deciding.decide(seen, DEFAULT)
            seen = after(seen, step)
        assert (step.phase, step.active) == (Phase.ACTIVE, start)


@pytest.mark.parametrize(("active", "taint"), [(None, None), (PLUGIN, None), (PLUGIN, DRA)])
def test_a_node_whose_cards_nobody_hands_out_bears_nothing(
    active: str | None, taint: str | None
) -> None:
    """A new mode would never begin there, and its taint keep all pods off for ever."""
    known = {**labelled(wish=DRA, active=active), labels.VENDOR: "metax"}
    step = deciding.decide(View(labels=known, taint=taint), DEFAULT)
    assert (step.phase, step.active, step.taint) == (Phase.NO_CARDS, None, None)


def test_a_node_without_cards_bears_nothing() -> None:
    for view in states():
        known = {key: text for key, text in view.labels.items() if key != labels.VENDOR}
        bare = msgspec.structs.replace(view, labels=known)
        assert deciding.decide(bare, DEFAULT) == Step(Phase.NO_CARDS)


@pytest.mark.parametrize(
    ("wish", "active", "expected"),
    [
        (None, None, DEFAULT),
        (DRA, None, DRA),
        (DRA, PLUGIN, DRA),
        ("mps", DRA, DRA),
        ("mps", None, DEFAULT),
        ("mps", "mps", DEFAULT),
    ],
)
def test_a_node_is_to_have_what_its_label_chooses_or_what_it_had(
    wish: str | None, active: str | None, expected: str
) -> None:
    assert deciding.wanted(labelled(wish=wish, active=active), DEFAULT) == expected


def test_pods_that_leave_already_and_static_ones_are_not_evicted_but_waited_for() -> None:
    view = View(
        labels=labelled(wish=DRA, active=PLUGIN),
        taint=DRA,
        holders=(
            msgspec.structs.replace(holder(name="goes"), is_leaving=True),
            msgspec.structs.replace(holder(name="file"), is_static=True),
            msgspec.structs.replace(holder(name="ours"), daemon_set="watch"),
        ),
    )
    step = deciding.decide(view, DEFAULT)
    assert [each.name for each in step.evict] == ["ours"]
    assert step.message == (
        "Cards change from device-plugin to dra: pods that hold cards are to go: "
        "t/file (a static pod, which only its file on the node ends), t/goes, "
        "t/ours (of DaemonSet watch)."
    )


def test_cards_that_somebody_elses_plugin_offers_are_waited_for_and_left_to_its_pods() -> None:
    view = View(labels=labelled(wish=DRA), offers={PLUGIN: ("nvidia.com/gpu: 4",)})
    step = deciding.decide(view, DEFAULT)
    assert (step.phase, step.active, step.taint) == (Phase.WAITING_FOR_OFFER_TO_GO, None, None)
    assert "nvidia.com/gpu: 4" in step.message
    held = msgspec.structs.replace(view, holders=(holder(PLUGIN),))
    step = deciding.decide(held, DEFAULT)
    assert (step.phase, step.active, step.taint) == (Phase.WAITING_FOR_OFFER_TO_GO, None, None)
    assert step.evict == ()
    assert "a plugin that this installation did not run, and are to end: t/a" in step.message


def test_a_node_that_has_to_wait_for_its_turn_is_left_as_it_is() -> None:
    known = labelled(active=DRA)
    step = deciding.settled(known, None, PLUGIN, may_start=False)
    assert step is not None
    assert (step.phase, step.active, step.taint) == (Phase.WAITING_FOR_TURN, DRA, None)
    assert deciding.settled(known, None, PLUGIN) is None
    assert deciding.settled(known, PLUGIN, PLUGIN, may_start=False) is None


def test_a_node_that_is_not_ready_is_left_as_it_is_until_it_is() -> None:
    for known in (labelled(active=DRA), labelled(wish=PLUGIN, active=DRA)):
        step = deciding.settled(known, None, PLUGIN, may_start=False, is_ready=False)
        assert step is not None
        assert (step.phase, step.active, step.taint) == (Phase.WAITING_FOR_NODE, DRA, None)
        assert (
            step.message == "Cards are to change from dra to device-plugin once the node is Ready."
        )
    assert deciding.settled(labelled(active=DRA), PLUGIN, PLUGIN, is_ready=False) is None


def test_a_node_whose_partitions_are_being_changed_is_left_until_that_is_done() -> None:
    known = labelled(wish=DRA, active=PLUGIN)
    paused = known | {"nvidia.com/gpu.deploy.device-plugin": "paused-for-mig-change"}
    step = deciding.settled(paused, None, PLUGIN)
    assert step is not None
    assert (step.phase, step.active, step.taint) == (Phase.WAITING_FOR_TURN, PLUGIN, None)
    assert "nvidia.com/mig.config.state" in step.message
    assert deciding.settled(known, None, PLUGIN) is None
    assert deciding.settled(paused, DRA, PLUGIN) is None


def test_a_mode_does_not_end_under_partitions_that_are_being_changed() -> None:
    """A node that came back from DRA is partitioned while its taint is still there."""
    known = labelled(wish=DRA, active=PLUGIN)
    paused = known | {"nvidia.com/gpu.deploy.device-plugin": "paused-for-mig-change"}
    turned = deciding.decide(View(labels=paused, taint=PLUGIN), DEFAULT)
    assert (turned.phase, turned.active, turned.taint) == (Phase.STARTING, PLUGIN, DRA)
    waits = deciding.decide(View(labels=paused, taint=DRA), DEFAULT)
    assert (waits.phase, waits.active, waits.evict) == (Phase.DRAINING, PLUGIN, ())
    assert "nvidia.com/mig.config.state" in waits.message
    assert deciding.decide(View(labels=known, taint=DRA), DEFAULT).phase is Phase.ENDING


def test_a_sentence_names_the_first_few_and_counts_the_rest() -> None:
    view = View(
        labels=labelled(wish=DRA, active=PLUGIN),
        taint=DRA,
        holders=tuple(holder(name=name) for name in "abcde"),
    )
    assert "t/a, t/b, t/c and 2 more." in deciding.decide(view, DEFAULT).message


def begun(devices: int | None, nothing: str = "") -> Step:
    """What is decided of a node whose new mode runs and offers so much."""
    view = View(
        labels=labelled(wish=DRA, active=DRA),
        taint=DRA,
        workloads={DRA: Workload(("nvidia-adapter-1",), True)},
        offers={DRA: ("ResourceSlice a",)},
        devices={DRA: devices},
        nothing=nothing,
    )
    return deciding.decide(view, DEFAULT)


def test_a_mode_that_has_said_all_and_offers_nothing_is_there_and_says_why() -> None:
    step = begun(0, "card-0: It is in partitioning mode.")
    assert (step.phase, step.active, step.taint) == (Phase.NOTHING_OFFERED, DRA, None)
    assert step.phase.is_settled
    assert step.message == (
        "Cards are handed out by Dynamic Resource Allocation, but none is offered. "
        "card-0: It is in partitioning mode."
    )
    assert begun(0).message.endswith("none is offered. nvidia-adapter-1 offers no device.")
    assert begun(4, "card-0: Told late.").phase is Phase.ACTIVE


def test_a_mode_that_has_not_said_all_is_waited_for() -> None:
    step = begun(None, "card-0: It is in partitioning mode.")
    assert (step.phase, step.taint) == (Phase.WAITING_FOR_OFFER, DRA)


def test_a_mode_that_is_late_lets_pods_in_once_its_own_pod_is_ready() -> None:
    known = labelled(wish=DRA, active=DRA)
    for is_ready, phase in ((False, Phase.WAITING_FOR_OFFER), (True, Phase.ACTIVE)):
        load = Workload(("nvidia-adapter-1",), is_ready)
        view = View(labels=known, taint=DRA, workloads={DRA: load})
        assert deciding.decide(view, DEFAULT, is_late=True).phase is phase
        assert deciding.decide(view, DEFAULT).phase is Phase.WAITING_FOR_OFFER


@pytest.mark.parametrize("value", ["false", "paused-for-mig-change"])
def test_a_mode_whose_pod_is_kept_off_the_node_says_by_what(value: str) -> None:
    label = "nvidia.com/gpu.deploy.device-plugin"
    known = {**labelled(wish=PLUGIN, active=PLUGIN), label: value}
    step = deciding.decide(View(labels=known, taint=PLUGIN), DEFAULT)
    assert step.message == (
        f"The mode device-plugin has begun: the label {label}={value} keeps its pod off the node."
    )
    known = {**labelled(wish=DRA, active=DRA), label: value}
    step = deciding.decide(View(labels=known, taint=DRA), DEFAULT)
    assert step.message == "The mode dra has begun: no pod of it is on the node yet."


def test_a_settled_node_says_whether_it_offers_anything() -> None:
    known = labelled(wish=DRA, active=DRA)
    step = deciding.settled(known, None, DEFAULT, nothing="card-0: Sick.")
    assert step is not None
    assert (step.phase, step.active) == (Phase.NOTHING_OFFERED, DRA)
    again = deciding.settled(known, None, DEFAULT)
    assert again is not None
    assert again.phase is Phase.ACTIVE
