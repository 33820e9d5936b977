# SPDX-License-Identifier: Apache-2.0
"""Functions of Sprig on text, which node-feature-discovery offers from v0.18 on.

What a function works on comes last, so that it can be piped in: `.x | trimPrefix "a" | upper`.
Patterns are those of rules: in linear time, and bounded.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from gpudeck.errors import InvalidError
from gpudeck.features.rules import patterns
from gpudeck.features.rules.patterns import Match
from gpudeck.features.templates.numbers import whole
from gpudeck.features.templates.values import shown

_LONGEST = 64 * 1024
_GROUP = re.compile(r"\$(?:(\$)|(\w+)|\{(\w+)\})")


def _text(function: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: function(shown(value))


def _texts(function: Callable[[str, str], Any]) -> Callable[[Any, Any], Any]:
    """`first` is what Sprig names first, `value` what is worked on."""
    return lambda first, value: function(shown(value), shown(first))


def _bounded(length: int) -> None:
    """Asked before a text is made: a few short ones can make one that no memory holds."""
    if length > _LONGEST:
        raise ValueError(f"it makes more than {_LONGEST} characters")


def _repeat(count: Any, value: Any) -> str:
    text = shown(value)
    _bounded(whole(count) * len(text))
    return text * max(whole(count), 0)


def _exchanged(old: Any, new: Any, value: Any) -> str:
    text, gone, come = shown(value), shown(old), shown(new)
    _bounded(len(text) + text.count(gone) * (len(come) - len(gone)))
    return text.replace(gone, come)


def _truncated(count: Any, value: Any) -> str:
    number = whole(count)
    return shown(value)[:number] if number >= 0 else shown(value)[number:]


def _part(begin: Any, end: Any, value: Any) -> str:
    """As Sprig: a negative beginning is the text's, an end that is none is the text's."""
    text, low, high = shown(value), whole(begin), whole(end)
    if low < 0:
        return text[: max(high, 0)]
    return text[low:] if high < 0 or high > len(text) else text[low:high]


def _shortened(width: Any, value: Any) -> str:
    text, limit = shown(value), whole(width)
    return text if limit < 4 or len(text) <= limit else text[: limit - 3] + "..."


def _title(text: str) -> str:
    return re.sub(r"(?<!\S)\S", lambda found: found[0].upper(), text)


def _untitle(text: str) -> str:
    return re.sub(r"(?<!\S)\S", lambda found: found[0].lower(), text)


def _joined(separator: Any, value: Any) -> str:
    found = value if isinstance(value, list) else [value]
    texts, between = [shown(each) for each in found if each is not None], shown(separator)
    _bounded(sum(map(len, texts)) + len(between) * (len(texts) - 1))
    return between.join(texts)


def _split(separator: Any, value: Any) -> list[str]:
    if not shown(separator):
        return list(shown(value))
    return shown(value).split(shown(separator))


def _numbered(parts: list[str]) -> dict[str, str]:
    return {f"_{index}": part for index, part in enumerate(parts)}


def _split_at_most(separator: Any, count: Any, value: Any) -> dict[str, str]:
    number = whole(count)
    if number == 0:
        return {}
    return _numbered(shown(value).split(shown(separator), number - 1 if number > 0 else -1))


def _indented(count: Any, value: Any) -> str:
    pad = " " * min(max(whole(count), 0), _LONGEST)
    return pad + _exchanged("\n", f"\n{pad}", value)


def _quoted(*values: Any) -> str:
    return " ".join(json.dumps(shown(each), ensure_ascii=False)
                    for each in values if each is not None)  # fmt: skip


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode("utf-8", "replace")
    except binascii.Error as error:
        raise ValueError(f"{text[:40]!r} is not base64") from error


def _every(pattern: Any, value: Any) -> Iterator[tuple[patterns.Pattern, str, Match]]:
    text = shown(value)
    try:
        found = patterns.compiled(shown(pattern), "a pattern")
        for match in found.every(text):
            yield found, text, match
    except InvalidError as error:
        raise ValueError(error.message) from error


def _matches(pattern: Any, value: Any) -> bool:
    try:
        return patterns.compiled(shown(pattern), "a pattern").search(shown(value))
    except InvalidError as error:
        raise ValueError(error.message) from error


def _find_all(pattern: Any, value: Any, count: Any) -> list[str]:
    found = [text[match.start() : match.end()] for _, text, match in _every(pattern, value)]
    return found[: whole(count)] if whole(count) >= 0 else found


def _replaced(pattern: Any, value: Any, expand: Callable[[patterns.Pattern, Match], str]) -> str:
    pieces, place, length = list[str](), 0, 0
    for found, text, match in _every(pattern, value):
        pieces += [text[place : match.start()], expand(found, match)]
        length += len(pieces[-1])
        _bounded(length)
        place = match.end()
    return "".join([*pieces, shown(value)[place:]])


def _replace_all(pattern: Any, value: Any, replacement: Any) -> str:
    """`$1` and `${name}` stand for groups, as in Go; one that is no group is empty."""
    text = shown(value)

    def expand(found: patterns.Pattern, match: Match) -> str:
        def group(asked: re.Match[str]) -> str:
            begin, end = found.group(asked[2] or asked[3] or "", match)
            return "$" if asked[1] else text[begin:end]

        return _GROUP.sub(group, shown(replacement))

    return _replaced(pattern, value, expand)


def _replace_literally(pattern: Any, value: Any, replacement: Any) -> str:
    return _replaced(pattern, value, lambda _found, _match: shown(replacement))


def _split_by(pattern: Any, value: Any, count: Any) -> list[str]:
    parts: list[str] = []
    limit, text, place = whole(count), shown(value), 0
    if limit == 0:
        return []
    for _, _, match in _every(pattern, value):
        if 0 < limit <= len(parts) + 1:
            break
        if match.end() == 0:
            continue  # As Go: nothing stands before an empty match at the beginning.
        parts.append(text[place : match.start()])
        place = match.end()
    return [*parts, text[place:]]


_PATTERNS: dict[str, Callable[..., Any]] = {
    "regexFind": lambda pattern, value: "".join(_find_all(pattern, value, 1)),
    "regexFindAll": _find_all,
    "regexMatch": _matches,
    "regexReplaceAll": _replace_all,
    "regexReplaceAllLiteral": _replace_literally,
    "regexSplit": _split_by,
}
CALLABLE: dict[str, Callable[..., Any]] = {
    **_PATTERNS,
    **{f"mustR{name[1:]}": function for name, function in _PATTERNS.items()},
    "abbrev": _shortened,
    "adler32sum": _text(lambda text: str(zlib.adler32(text.encode()))),
    "b64dec": _text(_decoded),
    "b64enc": _text(lambda text: base64.b64encode(text.encode()).decode()),
    "base": _text(lambda path: path.rstrip("/").rpartition("/")[2] or ("/" if path else ".")),
    "cat": lambda *values: " ".join(shown(each) for each in values if each is not None),
    "contains": _texts(lambda value, part: part in value),
    "ext": _text(lambda path: "".join(re.findall(r"\.[^./]*$", path))),
    "hasPrefix": _texts(lambda value, part: value.startswith(part)),
    "hasSuffix": _texts(lambda value, part: value.endswith(part)),
    "indent": _indented,
    "initials": _text(lambda text: "".join(word[0] for word in text.split())),
    "join": _joined,
    "lower": _text(str.lower),
    "nindent": lambda count, value: "\n" + _indented(count, value),
    "nospace": _text(lambda value: "".join(value.split())),
    "plural": lambda one, many, count: one if whole(count) == 1 else many,
    "quote": _quoted,
    "regexQuoteMeta": _text(lambda text: re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)),
    "repeat": _repeat,
    "replace": _exchanged,
    "sha1sum": _text(lambda text: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()),
    "sha256sum": _text(lambda text: hashlib.sha256(text.encode()).hexdigest()),
    "split": lambda separator, value: _numbered(_split(separator, value)),
    "splitList": _split,
    "splitn": _split_at_most,
    "squote": lambda *values: " ".join(f"'{shown(each)}'" for each in values if each is not None),
    "substr": _part,
    "swapcase": _text(str.swapcase),
    "title": _text(_title),
    "toString": shown,
    "trim": _text(str.strip),
    "trimAll": _texts(lambda value, part: value.strip(part)),
    "trimPrefix": _texts(lambda value, part: value.removeprefix(part)),
    "trimSuffix": _texts(lambda value, part: value.removesuffix(part)),
    "trunc": _truncated,
    "untitle": _text(_untitle),
    "upper": _text(str.upper),
}
