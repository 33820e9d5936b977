# SPDX-License-Identifier: Apache-2.0
"""What templates may call, with the meaning that Go's text/template gives it.

A function raises ValueError with a sentence for what it cannot do; `running` adds the line.
`and` and `or` are not here: they do not look at all of their operands.
"""

from __future__ import annotations

import html
import json
import operator
import re
import urllib.parse
from collections.abc import Callable
from typing import Any

from gpudeck.features.templates import lists, numbers, texts
from gpudeck.features.templates.values import is_true, shown

_VERB = re.compile(
    r"%(?P<flags>[-+# 0]{0,8})(?P<width>\d{0,9})(?P<precision>\.\d{1,9})?(?P<verb>[a-zA-Z%])"
)
_TEXTUAL, _WHOLE, _REAL = "sqxXv", "dxXocv", "fgev"
_WIDEST = 1024


def _len(value: Any) -> int:
    if not isinstance(value, str | list | dict):
        raise ValueError(f"len of {shown(value)}, which has none")
    return len(value.encode()) if isinstance(value, str) else len(value)


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(value, dict) and isinstance(key, str):
            value = value.get(key, "" if all(isinstance(v, str) for v in value.values()) else None)
        elif isinstance(value, list | str) and isinstance(key, int):
            if not 0 <= key < len(value):
                raise ValueError(f"index {key} of {len(value)} elements")
            value = value[key] if isinstance(value, list) else ord(value[key])
        else:
            raise ValueError(f"{shown(value)} has no element {shown(key)}")
    return value


def _slice(value: Any, *bounds: Any) -> Any:
    if not isinstance(value, str | list) or len(bounds) > 2:
        raise ValueError("slice takes text or a list, and one or two numbers")
    low, high = [*bounds, len(value)][:2] if bounds else (0, len(value))
    if not (isinstance(low, int) and isinstance(high, int) and 0 <= low <= high <= len(value)):
        raise ValueError(f"slice from {shown(low)} to {shown(high)} of {len(value)} elements")
    return value[low:high]


def _alike(first: Any, second: Any) -> None:
    for kind in (bool, str):
        if isinstance(first, kind) != isinstance(second, kind):
            raise ValueError(f"{shown(first)} and {shown(second)} are of different types")
    if isinstance(first, dict | list) or isinstance(second, dict | list):
        raise ValueError("lists and maps cannot be compared")


def _eq(first: Any, *others: Any) -> bool:
    if not others:
        raise ValueError("eq takes two values or more")
    for other in others:
        _alike(first, other)
        if first == other:
            return True
    return False


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def function(first: Any, second: Any) -> bool:
        _alike(first, second)
        if first is None or second is None or isinstance(first, bool):
            raise ValueError(f"{shown(first)} and {shown(second)} have no order")
        return compare(first, second)

    return function


def _ne(first: Any, second: Any) -> bool:
    return not _eq(first, second)


def _print(*values: Any) -> str:
    """A blank stands between two values of which neither is text."""
    text = ""
    for index, value in enumerate(values):
        is_apart = index and not isinstance(value, str) and not isinstance(values[index - 1], str)
        text += (" " if is_apart else "") + shown(value)
    return text


def _println(*values: Any) -> str:
    return " ".join(map(shown, values)) + "\n"


def _printf(form: Any, *values: Any) -> str:
    if not isinstance(form, str):
        raise ValueError("printf takes a format first")
    waiting = list(values)

    def fill(found: re.Match[str]) -> str:
        if found["verb"] == "%":
            return "%"
        if not waiting:
            raise ValueError(f"printf has no value for {found[0]}")
        return _formatted(found, waiting.pop(0))

    text = _VERB.sub(fill, form)
    if waiting:
        raise ValueError(f"printf has no verb for {shown(waiting[0])}")
    return text


def _formatted(found: re.Match[str], value: Any) -> str:
    verb, flags = found["verb"], found["flags"]
    width, precision = int(found["width"] or 0), int((found["precision"] or ".0")[1:])
    if max(width, precision) > _WIDEST:
        raise ValueError(f"{found[0]} is wider than {_WIDEST}")
    limit = precision if found["precision"] else None
    text = _verb(verb, value, limit)
    if "+" in flags and isinstance(value, int | float) and value >= 0:
        text = f"+{text}"
    if "-" in flags:
        return text.ljust(width)
    return text.zfill(width) if "0" in flags and verb in "dxXf" else text.rjust(width)


def _verb(verb: str, value: Any, limit: int | None) -> str:
    if isinstance(value, bool):
        if verb in "tv":
            return shown(value)
    elif isinstance(value, str) and verb in _TEXTUAL:
        text = value if limit is None else value[:limit]
        if verb == "q":
            return json.dumps(text, ensure_ascii=False)
        hexadecimal = text.encode().hex()
        return {"x": hexadecimal, "X": hexadecimal.upper()}.get(verb, text)
    elif isinstance(value, int) and verb in _WHOLE:
        return chr(value) if verb == "c" else format(value, verb if verb != "v" else "d")
    elif isinstance(value, float) and verb in _REAL:
        return (
            shown(value)
            if verb == "v"
            else format(value, f".{6 if limit is None else limit}{verb}")
        )
    elif verb in "vs":
        return shown(value)
    raise ValueError(f"printf cannot write {shown(value)} as %{verb}")


def _escaped_script(text: str) -> str:
    named = {"\\": r"\\", "'": r"\'", '"': r"\"", "<": r"\u003C", ">": r"\u003E", "&": r"\u0026",
             "=": r"\u003D"}  # fmt: skip
    return "".join(
        named.get(each, each if each.isprintable() else f"\\u{ord(each):04X}") for each in text
    )


def _escaped_page(text: str) -> str:
    """As Go, which writes quotes by their numbers."""
    return html.escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")


def why(name: str) -> str:
    """What to say of a name that is no function here, after that it is none."""
    for names, reason in _REFUSED.items():
        if name in names.split():
            return f": {reason}"
    import difflib  # noqa: PLC0415 (for those who mistype a name)

    near = difflib.get_close_matches(name, KNOWN, n=3)
    return f"; there is {', '.join(near)}" if near else ""


_REFUSED = {
    "call": "nothing in the data of a template can be called",
    "env expandenv getHostByName": "it would tell of the master, not of the node",
    "now date dateInZone dateModify date_modify dateModifyInZone mustDateModify ago unixEpoch "
    "htmlDate htmlDateInZone toDate mustToDate duration durationRound": "labels would change "
    "without a change of the node",
    "randAlpha randAlphaNum randNumeric randAscii randBytes randInt shuffle uuidv4 genPrivateKey "
    "genCA genCAWithKey genSelfSignedCert genSelfSignedCertWithKey genSignedCert "
    "genSignedCertWithKey bcrypt htpasswd derivePassword encryptAES decryptAES buildCustomCert":
    "labels are neither random nor secret",
    "semver semverCompare": "use an expression with `type: version`",
    "include tpl lookup required toYaml fromYaml": "it is Helm's, not node-feature-discovery's",
}  # fmt: skip
"""Why functions that users know from elsewhere are not here."""
CALLABLE: dict[str, Callable[..., Any]] = {
    **texts.CALLABLE,
    **numbers.CALLABLE,
    **lists.CALLABLE,
    "html": lambda *values: _escaped_page(_print(*values)),
    "js": lambda *values: _escaped_script(_print(*values)),
    "urlquery": lambda *values: urllib.parse.quote_plus(_print(*values)),
    "not": lambda value: not is_true(value),
    "len": _len,
    "index": _index,
    "slice": _slice,
    "eq": _eq,
    "ne": _ne,
    "lt": _ordered(operator.lt),
    "le": _ordered(operator.le),
    "gt": _ordered(operator.gt),
    "ge": _ordered(operator.ge),
    "print": _print,
    "printf": _printf,
    "println": _println,
}
KNOWN = frozenset({*CALLABLE, "and", "or"})
