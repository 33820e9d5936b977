# SPDX-License-Identifier: Apache-2.0
"""The annotation by which a node asks for evictions."""

from __future__ import annotations

import msgspec
import pytest

from gpudeck import errors
from gpudeck.controller.draining import requests

POD = {"namespace": "t", "name": "a", "uid": "u"}


def test_a_request_says_who_wants_which_pods_to_go_and_why() -> None:
    text = msgspec.json.encode({"by": "mig-manager", "why": "new partitions", "pods": [POD]})
    found = requests.read(text.decode())
    assert (found.by, found.why) == ("mig-manager", "new partitions")
    assert found.pods == [requests.Pod(namespace="t", name="a", uid="u")]
    assert requests.read('{"pods": []}').pods == []
    everybody = requests.read('{"all": true, "id": "7"}')
    assert (everybody.all, everybody.id) == (True, "7")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "truncated"),
        ("{}", "pods"),
        ("[]", "object"),
        ('{"pods": [{"namespace": "t", "uid": "u"}]}', "name"),
        ('{"pods": [{"namespace": "t", "name": "", "uid": "u"}]}', "$.pods[0].name"),
        ('{"pods": "all"}', "$.pods"),
        ('{"all": false, "id": "1"}', "pods"),
        ('{"pods": [], "x": ' + "[" * 3000 + "]" * 3000 + "}", "recursion"),
        (msgspec.json.encode({"pods": [POD] * 201}).decode(), "200"),
    ],
)
def test_what_is_no_request_is_refused_with_what_would_do(text: str, word: str) -> None:
    with pytest.raises(errors.InvalidError, match=r"annotation gpu\.deckhouse\.io/drain") as found:
        requests.read(text)
    assert word in found.value.message
    assert found.value.reason == "DrainInvalid"
    assert '"namespace"' in found.value.allowed
