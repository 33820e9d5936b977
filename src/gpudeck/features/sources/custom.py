# SPDX-License-Identifier: Apache-2.0
"""Rules of the node itself: files in custom.d, each a YAML list of rules as in a NodeFeatureRule.

Those of the worker's own configuration come first.

They give labels only. A file that is no such list or may not be read, and a rule that makes no
sense, are left out by name; the others count. Files are used by their names, one level of
folders included, because a mounted ConfigMap is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    for path in _files(root, FOLDER, depth=1):
        try:
            named += _rules(root, path)
        except errors.NotFoundError:
            continue  # It went after it was listed.
        except (InvalidError, errors.ForbiddenError) as error:
            left_out.append(error.message)
    copy = Known(known.flags, dict(known.attributes), known.instances)
    outcome, refused = evaluating.evaluate(named, copy)
    return outcome.labels, [*left_out, *(f"{each.origin}: {each.message}" for each in refused)]


def _files(root: Root, folder: str, *, depth: int) -> Iterator[str]:
    for name in root.list(folder):
        path = f"{folder}/{name}"
        if name.startswith("."):
            continue
        if not root.is_directory(path):
            yield path
        elif depth:
            yield from _files(root, path, depth=depth - 1)


def _rules(root: Root, path: str) -> list[Named]:
    import yaml  # noqa: PLC0415 (two megabytes, for the few nodes that have such files)

    from gpudeck.api import documents  # noqa: PLC0415 (it loads yaml)

    content = root.read_bytes(path, limit=LIMIT_BYTES + 1)
    if len(content) > LIMIT_BYTES:
        _refuse(path, "it is too large", f"at most {LIMIT_BYTES} bytes")
    try:
        given = documents.load(content) or []
        found = msgspec.convert(
            [shorthand.expanded(each) for each in given] if isinstance(given, list) else given,
            list[Rule],
        )
    except yaml.YAMLError as error:
        _refuse(path, documents.shown(error), "a YAML document")
    except msgspec.ValidationError as error:
        _refuse(path, str(error), "a list of rules")
    return [Named(path, f"[{index}]", rule) for index, rule in enumerate(found)]


def _refuse(path: str, why: str, allowed: str) -> NoReturn:
    raise InvalidError(f"{path}: {why}; allowed: {allowed}", field=path, allowed=allowed)
