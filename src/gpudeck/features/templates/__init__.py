# SPDX-License-Identifier: Apache-2.0
"""Templates of rules: the part of Go's text/template that is stated here. Pure.

Known: text, comments, trimming (`{{-`, `-}}`); fields (`.pci.device`), `$`, variables
(`:=`, `=`), string, number, `true`, `false` and `nil` literals, parentheses, pipelines;
`if`, `else if`, `else`, `range` (with one or two variables, over lists, maps and numbers,
with `else`), `with`, `break`, `continue`, `end`; the functions and, or, not, len, index,
slice, eq, ne, lt, le, gt, ge, print, printf, println, and of those that node-feature-discovery
takes from Sprig the ones in `sprig`. A name that is not there is an error, as there
(missingkey=error). Not known, and refused by name: define, template, block, call, html, js,
urlquery and Sprig's others. A template may loop 10,000 times and write 64 KiB.

`lexing` cuts the text, `parsing` makes the tree (`tree`), `running` runs it, `functions` and
`sprig` are what it may call.
"""

from __future__ import annotations

import functools
from typing import Any

from gpudeck.errors import InvalidError
from gpudeck.features.templates import parsing, running, tree

_parsed = functools.lru_cache(maxsize=1024)(parsing.parse)


def render(text: str, value: Any, path: str) -> str:
    """Return the text of a template for `value`, made of dicts, lists, strings and numbers.

    InvalidError that starts with `path` and gives the line, for a template that cannot be
    read and for one that fails.
    """
    try:
        return running.run(_parsed(text), value)
    except tree.TemplateError as error:
        raise InvalidError(f"{path}: {error}", field=path, allowed="a template") from error
