# SPDX-License-Identifier: Apache-2.0
"""A reboot is asked of the host's own systemctl, in the host's root."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpudeck import errors
from gpudeck.host import rebooting
from gpudeck.host.root import Root

PROGRAM = """
#include <stdio.h>
int main(int count, char **words) {
    FILE *told = fopen("/told", "w");
    fputs(count == 2 ? words[1] : "?", told);
    fclose(told);
    fputs("not today", stderr);
    return %d;
}
"""


def host(folder: Path, status: int) -> Root:
    """A host whose systemctl writes down what it is told."""
    compiler = shutil.which("cc")
    if os.geteuid() != 0 or compiler is None:
        pytest.skip("needs root and a C compiler")
    program = folder / "usr/bin/systemctl"
    program.parent.mkdir(parents=True)
    command = [compiler, "-static", "-x", "c", "-o", str(program), "-"]
    subprocess.run(command, input=(PROGRAM % status).encode(), check=True)
    return Root(folder)


async def test_the_host_is_told_to_reboot(tmp_path: Path) -> None:
    await rebooting.reboot(host(tmp_path, 0))
    assert (tmp_path / "told").read_text() == "reboot"


async def test_a_refusal_is_told_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(errors.UnavailableError, match="systemctl reboot: not today"):
        await rebooting.reboot(host(tmp_path, 1))


async def test_a_host_without_systemctl_is_to_be_rebooted_by_hand(tmp_path: Path) -> None:
    with pytest.raises(errors.UnsupportedError, match="reboot it by hand") as caught:
        await rebooting.reboot(Root(tmp_path))
    assert caught.value.reason == "RebootUnsupported"
