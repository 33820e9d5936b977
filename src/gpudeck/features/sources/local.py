# SPDX-License-Identifier: Apache-2.0
"""The features local.label and local.feature: files that others leave in features.d.

GPU feature discovery writes one there. A line is `name=value`, or `name` for `true`.
`# +expiry-time=<RFC 3339>` counts for the lines after it, `# +no-label` and `# +no-feature`
for the next one. Files whose names start with a dot (half-written ones) are passed over,
and those of more than 64 KiB are left out, as is what would make the NodeFeature too large.
"""

from __future__ import annotations

import datetime

import msgspec

from gpudeck import errors
from gpudeck.errors import InvalidError
from gpudeck.features.known import Known
from gpudeck.host.root import Root

FOLDER = "/etc/kubernetes/node-feature-discovery/features.d"
LIMIT_BYTES = 64 * 1024
TOTAL_BYTES = 3 * LIMIT_BYTES
"""Of all files together. Each name stands in a NodeFeature thrice, and twice more in its managed
fields; etcd takes 1.5 MiB (3.7), and with a NodeFeature that it refuses all labels of the node
would stay as they were."""
MOST_FILES = 1000
_MOST_SAID = 10
"""Lines of one file that are said to be wrong."""
_DIRECTIVE = "# +"


class File(msgspec.Struct):
    """What one file says."""

    features: dict[str, str] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    left_out: list[str] = msgspec.field(default_factory=list)


def read(root: Root, known: Known) -> list[str]:
    """Add what the files say, by name; a later file's value is the valid one.

    UnavailableError where the disk fails: labels of a file that is there must not go.
    """
    now = datetime.datetime.now(datetime.UTC)
    total, room = File(), TOTAL_BYTES
    names = [name for name in root.list(FOLDER) if not name.startswith(".")]
    for name in names[:MOST_FILES]:
        try:
            if root.is_directory(f"{FOLDER}/{name}"):
                continue
            content = _content(root, f"{FOLDER}/{name}", min(room, LIMIT_BYTES))
        except errors.NotFoundError:
            continue  # It went after it was listed.
        except (InvalidError, errors.ForbiddenError) as error:
            total.left_out.append(error.message)
            continue
        room -= len(content)
        found = parse(content.decode("utf-8", "replace"), now)
        total.features.update(found.features)
        total.labels.update(found.labels)
        total.left_out += [f"{FOLDER}/{name}: {each}" for each in _some(found.left_out)]
    if len(names) > MOST_FILES:
        more = len(names) - MOST_FILES
        total.left_out.append(f"{FOLDER}: {more} files are left out; allowed: at most {MOST_FILES}")
    known.attributes["local.feature"] = total.features
    known.attributes["local.label"] = total.labels
    return total.left_out


def _content(root: Root, path: str, limit: int) -> bytes:
    content = root.read_bytes(path, limit=limit + 1)
    if len(content) > limit:
        allowed = f"at most {LIMIT_BYTES} bytes, and {TOTAL_BYTES} in all files together"
        raise InvalidError(f"{path} is too large; allowed: {allowed}", field=path, allowed=allowed)
    return content


def _some(said: list[str]) -> list[str]:
    if len(said) <= _MOST_SAID:
        return said
    return [*said[:_MOST_SAID], f"{len(said) - _MOST_SAID} more lines are no directives"]


def parse(text: str, now: datetime.datetime) -> File:
    """Return what a file says at `now`. A directive that is none is reported and counts nothing."""
    found = File()
    is_expired, hides_feature, hides_label = False, False, False
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith(_DIRECTIVE):
            word, _, value = line.removeprefix(_DIRECTIVE).partition("=")
            match word.strip():
                case "no-feature":
                    hides_feature = True
                case "no-label":
                    hides_label = True
                case "expiry-time" if (moment := _moment(value)) is not None:
                    is_expired = moment < now
                case _:
                    found.left_out.append(f"line {number}: {line!r} is no directive")
        elif line and not line.startswith("#") and not is_expired:
            name, equals, value = line.partition("=")
            _store(found.features, name, value if equals else "true", hides_feature)
            _store(found.labels, name, value if equals else "true", hides_label)
            hides_feature, hides_label = False, False
    return found


def _store(into: dict[str, str], name: str, value: str, hides: bool) -> None:
    if hides:
        into.pop(name, None)
    else:
        into[name] = value


def _moment(text: str) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
