# SPDX-License-Identifier: Apache-2.0
"""A machine in the words of simctl: numbers of NVML, places, links, what a card lacks."""

import pytest

from gpudeck.lab import description, machine


def card_lines(name: str, index: int) -> list[str]:
    host = machine.load(name)
    return description.render(host).split("\ncard\n")[index + 1].splitlines()


def values(name: str, index: int, key: str) -> list[str]:
    lines = card_lines(name, index)
    return [line.split(" ", 1)[1] for line in lines if line.split(" ", 1)[0] == key]


def test_the_host_comes_before_its_cards() -> None:
    head = description.render(machine.load("h100-x8")).split("\ncard\n")[0]
    assert head.split() == ["driver", "580.105.08", "cuda", "13000", "caps-major", "508"]


@pytest.mark.parametrize(
    ("name", "lacking", "able"),
    [
        ("t4-x4", {"remapped-rows", "memory-temperature", "fabric"}, {"ecc", "retired-pages"}),
        ("h100-x8", {"retired-pages", "fan", "platform"}, {"fabric", "gpm", "remapped-rows"}),
        ("l40s-x4", {"memory-temperature", "application-clocks"}, {"average-power", "ecc"}),
        ("a100-40gb-x4", {"average-power", "gpm", "retired-pages"}, {"memory-temperature"}),
        ("gb10-x1", {"memory", "ecc", "power-limit", "supported-clocks"}, {"power-usage"}),
    ],
)
def test_a_card_lacks_what_its_model_lacks(name: str, lacking: set[str], able: set[str]) -> None:
    lacks = set(values(name, 0, "lacks")[0].split())
    assert lacking <= lacks
    assert not able & lacks


def test_cards_behind_one_switch_share_its_number() -> None:
    switches = [values("l40s-x4", index, "pcie-switch")[0] for index in range(4)]
    bridges = [values("l40s-x4", index, "host-bridge")[0] for index in range(4)]
    assert (switches, bridges) == (["1", "1", "3", "3"], ["1", "1", "3", "3"])


def test_links_are_joined_at_both_ends_by_the_same_numbers() -> None:
    first, second = values("v100-x8", 0, "link"), values("v100-x8", 3, "link")
    assert first[2:4] == [
        "2 gpu 0000:0b:00.0 0 1db510de",
        "3 gpu 0000:0b:00.0 1 1db510de",
    ]
    assert second[:2] == ["0 gpu 0000:06:00.0 2 1db510de", "1 gpu 0000:06:00.0 3 1db510de"]


def test_every_link_ends_at_a_switch_where_there_are_switches() -> None:
    links = values("h100-x8", 7, "link")
    ends = [link.split()[2] for link in links]
    assert len(links) == 18
    assert [ends.count(f"0000:{bus}:00.0") for bus in ("07", "08", "09", "0a")] == [5, 4, 5, 4]


@pytest.mark.parametrize(
    ("name", "change", "kept", "resetless"),
    [("a100-40gb-x4", "by-reset", "1", "0"), ("h100-x8", "at-once", "0", "1")],
)
def test_the_mig_mode_behaves_as_the_generation_does(
    name: str, change: str, kept: str, resetless: str
) -> None:
    assert values(name, 0, "mig-change") == [change]
    assert values(name, 0, "mig-kept-over-reboot") == [kept]
    assert values(name, 0, "mig-resetless") == [resetless]


def test_instance_ids_are_those_of_the_users_guide() -> None:
    """A100 guide: 7g 0; 4g 1; 2g 3, 4, 5; 1g 7 to 13, by start."""
    places = values("a100-40gb-x4", 0, "placement")
    assert places[0:7] == [f"{start} 1 {start + 7}" for start in range(7)]
    assert {"0 2 3", "2 2 4", "4 2 5", "0 4 1", "4 4 2", "0 8 0"} <= set(places)


def test_a_card_without_mig_has_no_profiles() -> None:
    assert values("t4-x4", 0, "profile") == []
