# SPDX-License-Identifier: Apache-2.0
"""No drawers, no shreds: modules and functions stay readable in one go."""

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for path in (ROOT / "src").rglob("*.py")
    if "/wire/" not in str(path) and "/adapter/v1/" not in str(path)
)
OTHERS = sorted(path for each in ("tests", "benchmarks") for path in (ROOT / each).rglob("*.py"))
LONGEST_MODULE, LONGEST_FUNCTION = 600, 60
BANNED = {"manager", "helper", "util", "utils", "common", "base", "impl", "handler", "processor"}
BANNED |= {"service", "info", "data", "misc"}
PRAGMA = "SPDX-License-Identifier: Apache-2.0"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_a_module_opens_with_its_licence_and_says_what_it_owns(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f"# {PRAGMA}\n")
    assert ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("path", [*SOURCES, *OTHERS], ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_and_its_functions_fit_a_reader(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= LONGEST_MODULE
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= LONGEST_FUNCTION
    ]
    assert long == []


def test_no_module_is_named_after_nothing() -> None:
    vague = [str(path) for path in SOURCES if set(path.stem.split("_")) & BANNED]
    assert vague == []


def test_every_tracked_source_file_names_its_licence() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    wanted = (".py", ".c", ".h", ".go", ".proto", ".yaml", ".yml", ".sh", ".tpl")
    generated = ("_pb2.py", "_pb2_grpc.py")
    without = [
        name
        for name in listed
        if name.endswith(wanted)
        and not name.endswith(generated)
        and not name.startswith("tests/golden/")
        and (ROOT / name).is_file()
        and PRAGMA not in "\n".join((ROOT / name).read_text().splitlines()[:3])
    ]
    assert without == []
