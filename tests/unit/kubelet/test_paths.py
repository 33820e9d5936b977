# SPDX-License-Identifier: Apache-2.0
"""Names of a plugin's sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck import errors
from gpudeck.kubelet import paths

REGISTRY = Path("/var/lib/kubelet/plugins_registry")
UID = "2ad0e6a2-7b3f-4c0e-9d2f-1c1f6f0f9a51"
DRIVER = "gpu.deckhouse.io"


def test_a_plugin_without_a_pod_has_the_plain_names() -> None:
    assert paths.registration_socket(REGISTRY, DRIVER) == REGISTRY / f"{DRIVER}-reg.sock"
    assert paths.plugin_socket(Path("/p")) == Path("/p/dra.sock")


def test_a_plugin_of_a_pod_has_names_of_its_own() -> None:
    assert paths.registration_socket(REGISTRY, DRIVER, UID).name == f"{DRIVER}-{UID}-reg.sock"
    assert paths.plugin_socket(Path("/p"), UID) == Path(f"/p/dra-{UID}.sock")


@pytest.mark.parametrize(
    ("length", "start"), [(60, f"{DRIVER}-"), (71, "dra-")], ids=["first", "last"]
)
def test_long_folders_fall_back_to_shorter_names(length: int, start: str) -> None:
    folder = Path("/" + "d" * (length - 1))
    path = paths.registration_socket(folder, DRIVER, UID)
    assert path.name.startswith(start)
    assert path.name.endswith("-reg.sock")
    assert UID not in path.name
    assert len(bytes(path)) <= paths.MAX_SOCKET_PATH_BYTES


def test_what_cannot_fit_is_refused_with_the_limit() -> None:
    with pytest.raises(errors.InvalidError, match="too long") as caught:
        paths.registration_socket(Path("/" + "d" * 100), DRIVER, UID)
    assert caught.value.allowed == "at most 107 bytes"
