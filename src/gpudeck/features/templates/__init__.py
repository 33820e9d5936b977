# SPDX-License-Identifier: Apache-2.0
"""Templates of rules: Go's text/template and Sprig, as far as is stated here. Pure.

Known is all of the language: text, comments, trimming (`{{-`, `-}}`); fields (`.pci.device`), `$`,
variables (`:=`, `=`), literals, parentheses, pipelines; `if`, `else if`, `with`, `else with`,
`range` (with one or two variables, over lists, maps and numbers, with `else`), `break`,
`continue`, `define`, `template`, `block`; Go's functions but `call`, since nothing in the data can
be called. A name that is not there is an error, as in node-feature-discovery
(missingkey=error). Of Sprig, which it offers from v0.18 on, those functions are known that
`texts`, `lists` and `numbers` have; the others are refused by name (`functions.why`). A
template may loop 10,000 times and write 64 KiB.

`lexing` cuts the text, `parsing` makes the tree (`tree`), `running` runs it, `functions` is what
it may call.
"""

from __future__ import annotations

import functools
from typing import Any

from gpudeck.errors import InvalidError
from gpudeck.features.templates import parsing, running, tree

_parsed = functools.lru_cache(maxsize=1024)(parsing.parse)


def check(text: str, path: str) -> None:
    """Return if the template can be read. InvalidError as `render` says why not."""
    try:
        _parsed(text)
    except tree.TemplateError as error:
        raise InvalidError(f"{path}: {error}", field=path, allowed="a template") from error


def render(text: str, value: Any, path: str) -> str:
    """Return the text of a template for `value`, made of dicts, lists, strings and numbers.

    InvalidError that starts with `path` and gives the line, for a template that cannot be
    read and for one that fails.
    """
    try:
        return running.run(_parsed(text), value)
    except tree.TemplateError as error:
        raise InvalidError(f"{path}: {error}", field=path, allowed="a template") from error
