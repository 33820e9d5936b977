# SPDX-License-Identifier: Apache-2.0
"""Machines as data: what ships is possible hardware, what a user writes is checked."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudeck import errors
from gpudeck.lab import machine


@pytest.mark.parametrize("name", machine.names())
def test_a_shipped_machine_is_possible_hardware(name: str) -> None:
    host = machine.load(name)
    assert host.name == name
    assert all(card.uuid.startswith("GPU-") for card in host.cards)


def test_the_twelve_machines_ship() -> None:
    assert machine.names() == [
        "a100-40gb-x4",
        "a100-80gb-x8",
        "a30-x2",
        "b200-x8",
        "gb10-x1",
        "h100-x8",
        "h200-x8",
        "l40s-x4",
        "metax-c500-x8",
        "mixed",
        "t4-x4",
        "v100-x8",
    ]


def test_identities_belong_to_the_host_and_stay() -> None:
    first, again = machine.load("h100-x8", host="gpu-1"), machine.load("h100-x8", host="gpu-1")
    other = machine.load("h100-x8", host="gpu-2")
    assert first.cards == again.cards
    uuids = {card.uuid for card in (*first.cards, *other.cards)}
    serials = {card.serial for card in (*first.cards, *other.cards)}
    assert (len(uuids), len(serials)) == (16, 16)


def test_an_unknown_name_is_answered_with_the_names_there_are() -> None:
    with pytest.raises(
        errors.InvalidError, match=r"h100-x9.*allowed: a100-40gb-x4.*YAML"
    ) as caught:
        machine.load("h100-x9")
    assert caught.value.reason == "MachineNotFound"


def shipped(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((machine.FOLDER / f"{name}.yaml").read_text())
    return content


def write(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_file_of_the_users_works_with_its_own_model(tmp_path: Path) -> None:
    content = shipped("t4-x4")
    model = yaml.safe_load((machine.FOLDER / "models" / "t4.yaml").read_text())
    model["name"] = "Tesla T4 of my own"
    content["models"] = {"mine": model}
    content["cards"][0]["model"] = "mine"
    host = machine.load(write(tmp_path, content))
    assert host.name == "mine"
    assert host.model_of(host.cards[0]).name == "Tesla T4 of my own"
    assert host.model_of(host.cards[1]).name == "Tesla T4"


def test_an_unknown_key_is_refused_by_name(tmp_path: Path) -> None:
    content = shipped("t4-x4")
    content["cards"][2]["colour"] = "green"
    with pytest.raises(errors.InvalidError, match=r"colour.*cards\[2\]|cards\[2\].*colour|colour"):
        machine.load(write(tmp_path, content))


def test_text_that_is_no_yaml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("cards: [")
    with pytest.raises(errors.InvalidError) as caught:
        machine.load(path)
    assert caught.value.reason == "MachineUnreadable"


def test_a_card_is_found_by_its_address() -> None:
    host = machine.load("h100-x8")
    assert host.card_at("0000:43:00.0") == host.cards[1]
    with pytest.raises(errors.NotFoundError, match=r"0000:44:00\.0.*0000:1b:00\.0"):
        host.card_at("0000:44:00.0")


@pytest.mark.parametrize(
    ("name", "model", "total_mib", "profiles"),
    [
        ("h100-x8", "NVIDIA H100 80GB HBM3", 81559, 7),
        ("h200-x8", "NVIDIA H200", 143771, 7),
        ("a30-x2", "NVIDIA A30", 24576, 5),
        ("t4-x4", "Tesla T4", 15360, 0),
    ],
)
def test_models_carry_the_makers_figures(
    name: str, model: str, total_mib: int, profiles: int
) -> None:
    host = machine.load(name)
    found = host.model_of(host.cards[0])
    assert found.name == model
    assert found.memory is not None
    assert found.memory.total_mib == total_mib
    assert len(found.mig.profiles if found.mig else ()) == profiles
