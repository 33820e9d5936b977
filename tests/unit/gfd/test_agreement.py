# SPDX-License-Identifier: Apache-2.0
"""What labels count is what the device plugin offers, by the same cards and the same config."""

from __future__ import annotations

import pytest
from tests.unit.gfd.cards import host, node, split

from gpudeck.deviceplugin import offering
from gpudeck.gfd import labelling, options
from gpudeck.gfd.settings import Settings
from gpudeck.pluginconfig import reading
from gpudeck.pluginconfig import settings as configured
from gpudeck.vendors import contract

A100 = host("a100-40gb-x4")
SEVEN = [split(card, *["1g.5gb"] * 7) for card in A100]
SEED = [split(card, "2g.10gb", "2g.10gb", "1g.5gb", "1g.5gb", "1g.5gb") for card in A100]
ODD = [split(A100[0], "1g.5gb+me", "1c.3g.20gb"), split(A100[1]), *A100[2:]]
SLICED = "sharing: {timeSlicing: {%s resources: [{name: %s, replicas: 4}]}}"
RENAMED = "renameByDefault: true,"
MPS = "sharing: {mps: {resources: [{name: gpu, replicas: 4}]}}"


def offered(cards: list[contract.CardReading], text: str, settings: Settings) -> dict[str, int]:
    """Devices by resource, a shared one under the name of what is shared."""
    found = node(cards).inventory
    seen = offering.remember(offering.Seen(), found)
    config = configured.completed(reading.parse(text), settings)
    counts: dict[str, int] = {}
    for each in offering.offer(found, seen, config).resources:
        name = each.name.removeprefix("nvidia.com/").removesuffix(".shared")
        counts[name] = counts.get(name, 0) + len(each.devices)
    return {name: count for name, count in counts.items() if count}


def labelled(cards: list[contract.CardReading], text: str, settings: Settings) -> dict[str, int]:
    """Count times replicas, by resource."""
    chosen = options.merged(settings, reading.parse(text))
    labels = labelling.plan(node(cards), chosen).labels
    names = {name.removesuffix(".count") for name in labels if name.endswith(".count")}
    counts = {
        name: int(labels[f"{name}.count"]) * int(labels[f"{name}.replicas"]) for name in names
    }
    return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
@pytest.mark.parametrize("cards", [A100, SEVEN, host("h100-x8"), host("t4-x4")])
@pytest.mark.parametrize(
    "text", ["", SLICED % ("", "gpu"), SLICED % (RENAMED, "gpu"), SLICED % ("", "mig-1g.5gb"), MPS]
)
def test_labels_count_what_is_offered(
    cards: list[contract.CardReading], text: str, strategy: str
) -> None:
    if cards is SEVEN and strategy == "none":
        return  # Offered whole all the same, and replicas is 0: both as NVIDIA's programs 0.20.
    settings = Settings(mig_strategy=strategy)
    assert labelled(cards, text, settings) == offered(cards, text, settings)


@pytest.mark.parametrize(
    "text", ["", SLICED % ("", "mig-1g.5gb"), SLICED % (RENAMED, "mig-1g.5gb")]
)
@pytest.mark.parametrize("cards", [SEED, ODD])
def test_labels_of_mixed_layouts_count_what_is_offered(
    cards: list[contract.CardReading], text: str
) -> None:
    settings = Settings(mig_strategy="mixed")
    told, found = labelled(cards, text, settings), offered(cards, text, settings)
    # The label of whole cards counts those in MIG mode as well (gpu-feature-discovery 0.20).
    assert {**told, "gpu": None} == {**found, "gpu": None}


@pytest.mark.parametrize(
    "cards",
    [
        SEED,
        ODD,
        [split(A100[0], "1g.5gb", "1c.3g.20gb"), *SEVEN[1:]],
        [split(A100[0], "1c.3g.20gb")],
    ],
)
def test_where_single_cannot_be_followed_both_say_nothing_is_there(
    cards: list[contract.CardReading],
) -> None:
    settings = Settings(mig_strategy="single")
    assert labelled(cards, "", settings) == offered(cards, "", settings) == {}


PATTERNS = 'resources: {gpus: [{pattern: "*A100*", name: big}], mig: [{pattern: "1g*", name: one}]}'


@pytest.mark.parametrize(
    ("cards", "strategy", "shared", "label", "suffix"),
    [
        (A100, "none", "big", "gpu", "-SHARED"),
        (SEVEN, "single", "one", "gpu", "-MIG-1g.5gb-SHARED"),
        (SEVEN, "mixed", "one", "mig-1g.5gb", "-MIG-1g.5gb-SHARED"),
    ],
)
def test_resources_of_other_names_have_the_labels_of_what_they_are(
    cards: list[contract.CardReading], strategy: str, shared: str, label: str, suffix: str
) -> None:
    settings = Settings(mig_strategy=strategy)
    text = f"{PATTERNS}\n{SLICED % ('', shared)}"
    labels = labelling.plan(node(cards), options.merged(settings, reading.parse(text))).labels
    assert labels[f"{label}.replicas"] == "4"
    assert labels[f"{label}.sharing-strategy"] == "time-slicing"
    assert labels[f"{label}.product"].endswith(suffix)
    assert offered(cards, text, settings)[shared] == 4 * int(labels[f"{label}.count"])


def test_the_config_decides_the_strategy_of_both() -> None:
    settings = Settings(mig_strategy="single")
    text = "flags: {migStrategy: mixed}"
    assert labelled(SEVEN, text, settings) == offered(SEVEN, text, settings) == {"mig-1g.5gb": 28}
