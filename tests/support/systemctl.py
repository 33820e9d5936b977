# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a host's `systemctl`, for trees that are entered by chroot.

Each unit is a file with its state below the tree's /units; what is told goes to /told, a line a
call. A unit with a file UNIT.stuck beside it neither stops nor starts. Words, states and exit
statuses are those of systemctl(1), systemd 252, as `tests/contract/host` holds them to.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[512], state[64];

static int read_state(const char *unit)
{
    snprintf(path, sizeof path, "/units/%s", unit);
    FILE *file = fopen(path, "r");
    strcpy(state, "inactive");
    if (!file)
        return 0;
    if (fscanf(file, "%63s", state) != 1)
        strcpy(state, "inactive");
    fclose(file);
    return 1;
}

static int is_stuck(const char *unit)
{
    snprintf(path, sizeof path, "/units/%s.stuck", unit);
    return access(path, F_OK) == 0;
}

static void note(int count, char **words)
{
    FILE *told = fopen("/told", "a");
    for (int i = 1; i < count; i++)
        fprintf(told, "%s%s", words[i], i + 1 < count ? " " : "\n");
    fclose(told);
}

int main(int count, char **words)
{
    const char *chroot = getenv("SYSTEMD_IGNORE_CHROOT");
    if (!chroot || strcmp(chroot, "1")) {
        fprintf(stderr, "Running in chroot, ignoring command '%s'\n", words[1]);
        return 0;
    }
    if (!strcmp(words[1], "is-active")) {
        int active = 0;
        for (int i = 2; i < count; i++) {
            read_state(words[i]);
            puts(state);
            active += !strcmp(state, "active");
        }
        return active ? 0 : 3;
    }
    note(count, words);
    if (!strcmp(words[1], "reboot")) {
        if (!is_stuck("reboot.target"))
            return 0;
        fputs("Failed to reboot: not today\n", stderr);
        return 1;
    }
    int status = 0;
    for (int i = 2; i < count; i++) {
        if (!read_state(words[i])) {
            fprintf(stderr, "Failed to %s %s: Unit %s not %s.\n", words[1], words[i], words[i],
                    strcmp(words[1], "start") ? "loaded" : "found");
            status = 5;
        } else if (is_stuck(words[i])) {
            fprintf(stderr, "Job for %s failed.\n", words[i]);
            status = 1;
        } else {
            snprintf(path, sizeof path, "/units/%s", words[i]);
            FILE *file = fopen(path, "w");
            fputs(strcmp(words[1], "start") ? "inactive\n" : "active\n", file);
            fclose(file);
        }
    }
    return status;
}
"""


class Systemctl:
    """The init system of a host tree."""

    def __init__(self, tree: Path, **units: str) -> None:
        """`units` are services with their states, by their names without `.service`."""
        self._tree = tree
        program = tree / "usr/bin/systemctl"
        program.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_built(), program)
        (tree / "run/systemd/system").mkdir(parents=True, exist_ok=True)
        self._units = tree / "units"
        self._units.mkdir()
        for name, state in units.items():
            self.put(f"{name}.service", state)

    def put(self, unit: str, state: str) -> None:
        """Let a unit be in a state."""
        (self._units / unit).write_text(f"{state}\n")

    def stick(self, unit: str) -> None:
        """Let it neither stop nor start; as `reboot.target`, let no reboot be."""
        (self._units / f"{unit}.stuck").touch()

    def free(self, unit: str) -> None:
        """End what `stick` began."""
        (self._units / f"{unit}.stuck").unlink()

    def state(self, unit: str) -> str:
        """The state of a unit."""
        return (self._units / unit).read_text().strip()

    @property
    def told(self) -> list[str]:
        """What it was told to do, in order."""
        path = self._tree / "told"
        return path.read_text().splitlines() if path.exists() else []


@functools.cache
def _built() -> Path:
    """The program, without libraries: the tree has none."""
    compiler = shutil.which("cc")
    if os.geteuid() != 0 or compiler is None:
        pytest.skip("needs root and a C compiler")
    path = Path(tempfile.mkdtemp(prefix="systemctl-")) / "systemctl"
    command = [compiler, "-static", "-x", "c", "-o", str(path), "-"]
    subprocess.run(command, input=_PROGRAM.encode(), check=True)
    return path
