# SPDX-License-Identifier: Apache-2.0
"""Rules of the node itself: files in custom.d, each a YAML list of rules as in a NodeFeatureRule.

Those of the worker's own configuration come first.

They give labels only. A file that is no such list or may not be read, and a rule that makes no
sense, are left out by name; the others count. Files are used by their names, one level of
folders included, because a mounted ConfigMap is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import msgspec

from gpudeck import errors
from gpudeck.api.nodefeatures import Rule
from gpudeck.errors import InvalidError
from gpudeck.features.known import Known
from gpudeck.features.rules import evaluating, shorthand
from gpudeck.features.rules.evaluating import Named
from gpudeck.host.root import Root

FOLDER = "/etc/kubernetes/node-feature-discovery/custom.d"
LIMIT_BYTES = 64 * 1024


def labels(root: Root, known: Known, own: Iterable[Named] = ()) -> tuple[dict[str, str], list[str]]:
    """Return what the rules give a node of which this is known, and what was left out.

    UnavailableError where the disk fails: then nobody knows what the rules are.
    """
    named = list(own)
    left_out: list[str] = []
    waiting = _below(root, FOLDER)
    while waiting:
        path = waiting.pop(0)
        try:
            if not root.is_directory(path):
                named += _rules(root, path)
            elif path.count("/") == FOLDER.count("/") + 1:
                waiting[:0] = _below(root, path)
        except errors.NotFoundError:
            continue  # It went after it was listed.
        except (InvalidError, errors.ForbiddenError) as error:
            left_out.append(error.message)
    copy = Known(known.flags, dict(known.attributes), known.instances)
    outcome, refused = evaluating.evaluate(named, copy)
    return outcome.labels, [*left_out, *(f"{each.origin}: {each.message}" for each in refused)]


def _below(root: Root, folder: str) -> list[str]:
    return [f"{folder}/{name}" for name in root.list(folder) if not name.startswith(".")]


def _rules(root: Root, path: str) -> list[Named]:
    # Two megabytes, for the few nodes that have such files.
    from gpudeck.api import documents  # noqa: PLC0415 (it loads yaml)

    content = root.read_bytes(path, limit=LIMIT_BYTES + 1)
    if len(content) > LIMIT_BYTES:
        _refuse(path, "it is too large", f"at most {LIMIT_BYTES} bytes")
    given = documents.read(content, path) or []
    try:
        found = msgspec.convert(
            [shorthand.expanded(each) for each in given] if isinstance(given, list) else given,
            list[Rule],
        )
    except msgspec.ValidationError as error:
        _refuse(path, str(error), "a list of rules")
    return [Named(path, f"[{index}]", rule) for index, rule in enumerate(found)]


def _refuse(path: str, why: str, allowed: str) -> NoReturn:
    raise InvalidError(f"{path}: {why}; allowed: {allowed}", field=path, allowed=allowed)
