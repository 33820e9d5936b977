# SPDX-License-Identifier: Apache-2.0
"""Tables and JSON on standard output, plain enough for grep and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from gpudeck import errors

_GAP = "   "


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return aligned columns; numbers stand to the right, an absent value is a dash."""
    texts = [[_cell(value) for value in row] for row in rows]
    widths = [
        max(len(header), *(len(row[column]) for row in texts)) if texts else len(header)
        for column, header in enumerate(headers)
    ]
    right = [
        bool(rows) and all(_is_number(row[column]) for row in rows)
        for column in range(len(headers))
    ]
    lines = []
    for row in [list(headers), *texts]:
        cells = [
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ]
        lines.append(_GAP.join(cells).rstrip())
    return "\n".join(lines)


def show(text: str = "") -> None:
    """Print a paragraph. Raises UnavailableError where it cannot be, e.g. on a full disk."""
    try:
        click.echo(text)
    except BrokenPipeError:
        raise  # Who reads has enough; `main` ends the command.
    except OSError as error:
        raise errors.UnavailableError(
            f"the standard output cannot be written: {error.strerror}", reason="OutputLost"
        ) from error


def show_json(value: Any) -> None:
    """Print JSON as people and `jq` like it."""
    show(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _cell(value: object) -> str:
    return "-" if value is None or value == "" else str(value)
