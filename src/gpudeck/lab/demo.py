# SPDX-License-Identifier: Apache-2.0
"""The demonstration behind `make demo`: from nothing to two pods with a GPU each, and back.

It only calls the command line, and prints each command before it runs, so that
everything it shows can be repeated by hand. It leaves the lab running: the second
run, and whoever wants to look around, start from there.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpudeck.errors import TerminalError
from gpudeck.lab import places

_GPUDECK = str(Path(sys.executable).parent / "gpudeck")
_LAB = [_GPUDECK, "lab"]
_EXAMPLES = ("01-one-card", "02-class-of-cards")
_PODS = ("one-card", "class-of-cards")
_WAIT_SECONDS = 120
_UUID = re.compile(r"GPU-[0-9a-f-]{36}")


def say(text: str) -> None:
    """Print a line of the story."""
    sys.stdout.write(f"\n{text}\n")
    sys.stdout.flush()


def run(words: list[str], *, shown: str = "", quiet: bool = False) -> str:
    """Print a command as a user would type it, run it, and return its standard output."""
    if not quiet:
        sys.stdout.write(f"$ {shown or ' '.join(words)}\n")
        sys.stdout.flush()
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE, text=True)
    if not quiet:
        sys.stdout.write(done.stdout)
    if done.returncode != 0:
        raise TerminalError(f"`{shown or ' '.join(words)}` ended with code {done.returncode}")
    return done.stdout


def lab(*words: str, quiet: bool = False) -> str:
    """Run `gpudeck lab …`."""
    return run([*_LAB, *words], shown=" ".join(["gpudeck lab", *words]), quiet=quiet)


def kubectl(*words: str, quiet: bool = False) -> str:
    """Run kubectl in the lab."""
    shown = " ".join(["gpudeck lab kubectl --", *words])
    return run([*_LAB, "kubectl", "--", *words], shown=shown, quiet=quiet)


def gpudeck(*words: str, quiet: bool = False) -> str:
    """Run `gpudeck …` against the lab."""
    path = lab("kubeconfig", quiet=True).strip()
    shown = " ".join(["gpudeck", *words])
    return run([_GPUDECK, *words, "--kubeconfig", path], shown=shown, quiet=quiet)


def cards() -> list[dict[str, Any]]:
    """The status of every card, as the cluster tells it."""
    listing = kubectl("get", "physicalgpus", "-o", "json", quiet=True)
    return [item.get("status", {}) for item in json.loads(listing)["items"]]


def wait(what: str, state: str, count: int) -> None:
    """Wait until `count` cards are in an occupancy state."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        found = [card.get("occupancy", {}).get("state") for card in cards()]
        if found.count(state) == count:
            return
        time.sleep(0.5)
    raise TerminalError(f"{what} did not come true within {_WAIT_SECONDS} s; cards are {found}")


def held_by(pod: str) -> list[str]:
    """UUIDs of the cards that gpudeck says the pod holds."""
    return [
        card["currentState"]["uuid"]
        for card in cards()
        for claim in card.get("occupancy", {}).get("claims", [])
        if pod in claim.get("pods", [])
    ]


def show_pod(pod: str) -> None:
    """Show what the pod sees and check that it is what gpudeck says it holds."""
    seen = _UUID.findall(kubectl("exec", pod, "--", "nvidia-smi", "-L"))
    told = held_by(pod)
    if len(seen) != 1 or seen != told:
        raise TerminalError(f"pod {pod} sees {seen}, and gpudeck says that it holds {told}")
    say(f"Pod {pod} sees exactly one card, the one that gpudeck says it holds.")


def main() -> int:
    """Run the demonstration; 0 when everything shown was as it should be."""
    examples = places.repository() / "examples"
    try:
        say("A Kubernetes with two GPU nodes. The first time, programs are built for 10 to 20 min.")
        lab("up")
        say("gpudeck, installed by its chart.")
        lab("install")
        wait("12 free cards", "Free", 12)
        gpudeck("get")
        say("A pod that asks for any card, and one that asks for the class h100.")
        for name in _EXAMPLES:
            kubectl("apply", "-f", str(examples / name))
        kubectl(
            "wait", "--for=condition=Ready", "--timeout=120s", *(f"pod/{name}" for name in _PODS)
        )
        wait("two cards in use", "Full", 2)
        for name in _PODS:
            show_pod(name)
        gpudeck("get")
        say("Both pods deleted: their cards are free again.")
        kubectl("delete", "pod", *_PODS)
        wait("12 free cards", "Free", 12)
        gpudeck("get", "cards")
    except TerminalError as error:
        sys.stderr.write(f"\nThe demonstration failed: {error}\n")
        return 1
    say("The lab stays up: `gpudeck lab status` shows it, `gpudeck lab down` ends it.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
