# SPDX-License-Identifier: Apache-2.0
"""Impossible hardware is refused by a sentence with the field's path and the value."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudeck import errors
from gpudeck.lab import machine, machine_rules

Change = Callable[[dict[str, Any]], object]


def load_changed(folder: Path, name: str, change: Change) -> machine.Machine:
    content = yaml.safe_load((machine.FOLDER / f"{name}.yaml").read_text())
    change(content)
    path = folder / "changed.yaml"
    path.write_text(yaml.safe_dump(content))
    return machine.load(path)


def refusal(folder: Path, name: str, change: Change) -> str:
    with pytest.raises(errors.InvalidError) as caught:
        load_changed(folder, name, change)
    assert caught.value.reason == "MachineImpossible"
    return str(caught.value)


def with_model(key: str, change: Change) -> Change:
    """Bring the shipped model into the file itself, changed."""

    def apply(content: dict[str, Any]) -> None:
        model = yaml.safe_load((machine.FOLDER / "models" / f"{key}.yaml").read_text())
        change(model)
        content["models"] = {key: model}

    return apply


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda c: c["cards"][1].update(address="0000:1b:00.0"),
            "cards[1].address: '0000:1b:00.0' is also cards[0].address",
        ),
        (lambda c: c["cards"][0].update(address="1b:00.0"), "is no PCI address; allowed: for"),
        (lambda c: c["cards"].reverse(), "are not in PCI order"),
        (lambda c: c["cards"].clear(), "cards: [] is not allowed"),
        (lambda c: c["cards"][0].update(behind=[]), "cards[0].behind: [] is not allowed"),
        (
            lambda c: c["cards"][1].update(behind=["0000:1b:00.0"]),
            "cards[1].behind[0]: '0000:1b:00.0' is cards[0]; a bridge is no end device",
        ),
        (
            lambda c: c["cards"][1].update(behind=["0000:3d:01.0", "0000:16:00.0"]),
            "'0000:16:00.0' hangs below two different bridges",
        ),
        (lambda c: c["cards"][0].update(behind=["0001:15:01.0"]), "PCI domains 0000, 0001 differ"),
        (
            lambda c: c["cards"][0].update(numa_node=2),
            "cards[0].numa_node: 2 does not exist; allowed: -1 to 1",
        ),
        (lambda c: c["numa_nodes"][1].update(cpus="40-80"), "numa_nodes[1].cpus: '40-80' overlaps"),
        (lambda c: c["numa_nodes"][1].update(cpus="all"), "'all' is no list; allowed: for example"),
        (lambda c: c["cards"][0].update(module=2), "cards: modules"),
        (
            lambda c: c["nvlink"]["switches"].append("0000:0b:00.0"),
            "nvlink.switches[4]: '0000:0b:00.0' is not among others",
        ),
        (
            lambda c: c["nvlink"].update(pairs=[{"from": 0, "to": 1, "links": 1}]),
            "pairs and switches exclude each other",
        ),
        (
            lambda c: c.update(nvlink={"pairs": [{"from": 0, "to": 1, "links": 19}]}),
            "cards[0]: 19 NVLinks are joined; h100-80gb has 18",
        ),
        (
            lambda c: c.update(nvlink={"pairs": [{"from": 1, "to": 1, "links": 1}]}),
            "nvlink.pairs[0]: 1 to 1 is impossible",
        ),
        (lambda c: c.update(architecture="riscv"), "architecture: 'riscv'; allowed: x86_64"),
        (lambda c: c["driver"].update(version="new"), "driver.version: 'new' is no version"),
    ],
)
def test_an_impossible_host_is_refused(tmp_path: Path, change: Change, sentence: str) -> None:
    assert sentence in refusal(tmp_path, "h100-x8", change)


def test_a_driver_older_than_the_card_is_refused(tmp_path: Path) -> None:
    sentence = refusal(tmp_path, "b200-x8", lambda c: c["driver"].update(version="550.54.15"))
    assert "550.54.15 does not know cards[0] (b200); allowed: 570.133.20 or later" in sentence


def test_two_makers_in_one_host_are_refused(tmp_path: Path) -> None:
    sentence = refusal(tmp_path, "t4-x4", lambda c: c["cards"][3].update(model="metax-c500"))
    assert "makers metax, nvidia are mixed" in sentence


def test_nvlink_needs_cards_that_have_it(tmp_path: Path) -> None:
    sentence = refusal(tmp_path, "t4-x4", lambda c: c.update(nvlink={"switched": True}))
    assert "cards[0] (t4) has no NVLink" in sentence


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda m: m.update(maker="acme"), "models[h100-80gb].maker: 'acme' is not known"),
        (lambda m: m.update(architecture="rubin"), "architecture: 'rubin' is not known"),
        (lambda m: m.update(compute_capability="nine"), "compute_capability: 'nine'"),
        (lambda m: m["pci"].update({"class": 0x020000}), "pci.class: 0x020000; allowed"),
        (lambda m: m["memory"].update(reserved_mib=90000), "memory.reserved_mib: 90000 leaves"),
        (lambda m: m["power"].update(minimum_watts=800), "minimum, default, maximum in ascending"),
        (lambda m: m["pcie"].update(width=3), "pcie: generation 5, width 3 do not exist"),
        (lambda m: m.pop("memory"), "memory: only an integrated card has none"),
        (lambda m: m["mig"].update(mode_change="never"), "mig.mode_change: 'never'; allowed"),
        (lambda m: m["mig"]["profiles"][1].update(id=19), "mig.profiles: id"),
        (lambda m: m["mig"]["profiles"][0].update(name="2g.10gb"), "does not say 1 slices"),
        (lambda m: m["mig"]["profiles"][4].update(starts=[0, 5]), "starts: 5:4 ends outside"),
        (lambda m: m["mig"]["profiles"][5].update(maximum=2), "maximum: 2 instances have no room"),
        (lambda m: m["mig"]["profiles"][6].update(memory_mib=90000), "memory_mib: 90000 is more"),
        (lambda m: m["mig"]["profiles"][6].update(multiprocessors=133), "multiprocessors: 133"),
    ],
)
def test_an_impossible_model_is_refused(tmp_path: Path, change: Change, sentence: str) -> None:
    assert sentence in refusal(tmp_path, "h100-x8", with_model("h100-80gb", change))


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["cards"][0]["numa_node"] = 7
        content["driver"]["version"] = "new"

    sentence = refusal(tmp_path, "h100-x8", change)
    assert "numa_node: 7" in sentence
    assert "driver.version: 'new'" in sentence


def test_a_cpu_list_is_read_as_the_kernel_writes_it() -> None:
    assert machine_rules.cpus("0-2,5,8-9") == frozenset({0, 1, 2, 5, 8, 9})
