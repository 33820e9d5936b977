# SPDX-License-Identifier: Apache-2.0
"""No text that somebody writes into a ConfigMap or a file ends the process that reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gpudeck import errors
from gpudeck.agent import supported
from gpudeck.api import documents
from gpudeck.controller.nodegroups import reading as groups
from gpudeck.controller.nodegroups import workloads
from gpudeck.controller.nodegroups.groups import World
from gpudeck.features import configuring
from gpudeck.features.known import Known
from gpudeck.features.sources import custom
from gpudeck.host.root import Root
from gpudeck.mig import clients, configs
from gpudeck.pluginconfig import reading

TEXTS = {
    "deep lists": "[" * 5000,
    "deep closed lists": "[" * 5000 + "]" * 5000,
    "deep mappings": "{a: " * 3000 + "1" + "}" * 3000,
    "deep blocks": "- " * 5000 + "a",
    "a list as a key": "? [a]\n: b",
    "a day that there is not": "a: 2024-02-30",
    "a very long number": "a: " + "9" * 10_000,
    "a very long number of sixteens": "a: 0x" + "f" * 10_000,
    "a very long number as a key": "0" + "7" * 10_000 + ": a",
    "half a character": 'a: "\\ud800"',
    "half a character as a key": '"\\udfff": a',
    "a key twice": "a: 1\na: 2",
    "a long key twice": f"{'a' * 1000}: 1\n{'a' * 1000}: 2",
    "nothing that is called a number": "a: !!int ''",
    "a word that is called a truth": "a: !!bool x",
    "a word that is called a date": "a: !!timestamp x",
    "a tag of Python": "!!python/object:os.system x",
    "no YAML": "a: [",
    "a list in itself": "&a [*a]",
    "a rule in itself": "- &a {name: x, matchAny: [*a]}",
    "a mapping merged into itself": "a: &a {<<: *a}",
    "a text that grows as it is read": "\n".join(
        f"- &l{each} [{', '.join([f'*l{each - 1}' if each else 'ha'] * 10)}]" for each in range(9)
    ),
}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a: 1\na: 2", "line 2, column 1: the key 'a' stands twice"),
        (
            "a: 1\n\tb: 2",
            "line 2, column 1: while scanning for the next token "
            "found character '\\t' that cannot start any token",
        ),
        ("a: 2024-02-30", "day is out of range for month"),
    ],
)
def test_what_is_wrong_is_told_in_a_line_with_its_place(text: str, shown: str) -> None:
    with pytest.raises(errors.InvalidError) as caught:
        documents.read(text, "rules.yaml", reason="RulesInvalid")
    assert caught.value.message == f"rules.yaml: {shown}; allowed: a YAML document"
    assert (caught.value.reason, caught.value.field) == ("RulesInvalid", "rules.yaml")


def _groups(text: str) -> None:
    _, problems = groups.world([], text, World())
    for each in problems.values():
        raise each


def _templates(text: str) -> None:
    workloads.read({f"{name}.yaml": text for name in workloads.TEMPLATES})


def _custom(text: str, folder: Path) -> None:
    path = folder / custom.FOLDER[1:] / "rules.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    _, problems = custom.labels(Root(folder), Known())
    assert len(problems) == 1
    raise errors.InvalidError(problems[0])


READERS: dict[str, Callable[[str, Path], object]] = {
    "plugin config": lambda text, folder: reading.parse(text),
    "MIG config": lambda text, folder: configs.read(text),
    "supported vendors": lambda text, folder: supported.parse({supported.KEY: text}),
    "groups": lambda text, folder: _groups(text),
    "templates of groups": lambda text, folder: _templates(text),
    "services that have cards": lambda text, folder: clients.read("services", text),
    "settings of node features": lambda text, folder: configuring.worker(text),
    "rules of the node itself": _custom,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_cannot_be_read_is_one_kind_of_error(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        documents.load(text)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_every_reader_refuses_it(
    reader: Callable[[str, Path], object], text: str, tmp_path: Path
) -> None:
    with pytest.raises(errors.InvalidError) as caught:
        reader(text, tmp_path)
    assert len(caught.value.message) < 500


def test_what_people_write_is_read() -> None:
    assert documents.load("a: &a {b: [1, two]}\nc: {<<: *a, d: null}") == {
        "a": {"b": [1, "two"]},
        "c": {"b": [1, "two"], "d": None},
    }
    assert documents.load("") is None


def test_a_partition_is_not_a_number_of_minutes() -> None:
    """Kubernetes' own reader (goyaml.v2) has `1:0` as a text, quoted or not."""
    assert documents.load("a: [0:1, 1:0, 1:30.5, 12]") == {"a": ["0:1", "1:0", "1:30.5", 12]}


BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 10)}]" for n in range(12)]
)
MERGES = "\n".join(
    ["a0: &a0 {k: v}"]
    + [f"a{n + 1}: &a{n + 1} {{<<: [{', '.join([f'*a{n}'] * 10)}]}}" for n in range(12)]
)


@pytest.mark.parametrize("text", [BOMB, MERGES])
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_thousand_thousand_aliases_are_refused_and_not_written_out(
    reader: Callable[[str, Path], object], text: str, tmp_path: Path
) -> None:
    with pytest.raises(errors.InvalidError) as caught:
        reader(text, tmp_path)
    assert len(str(caught.value)) < 2000
