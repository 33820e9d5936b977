# SPDX-License-Identifier: Apache-2.0
"""A running lab as tests use it: kubectl, pods, and waiting for the state of the world.

What changes the cluster goes through the command line, as a user's work does. What is only
looked at, four times a second, is read from the API server by one kept connection: each start
of kubectl costs a tenth of a second of CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from gpudeck import errors
from gpudeck.lab import apiclient, toolchain

ROOT = Path(__file__).parents[2]
GPUDECK = Path(sys.executable).parent / "gpudeck"
NAMESPACE = "gpudeck-system"
POLL_SECONDS = 0.25
_UUID = re.compile(r"GPU-[0-9a-f-]{36}")

Object = dict[str, Any]

_CHOICE = argparse.ArgumentParser(prog="Lab.list", exit_on_error=False)
"""kubectl's words that say which objects of a kind are meant."""
_CHOICE.add_argument("-n", dest="namespace", default="default")
_CHOICE.add_argument("-A", dest="everywhere", action="store_true")
_CHOICE.add_argument("-l", dest="labels", default="")
_CHOICE.add_argument("--field-selector", dest="fields", default="")


class Kind(NamedTuple):
    """Where the API server has the objects of a kind."""

    version: str
    """`/api/v1`"""
    plural: str
    is_namespaced: bool

    def path(self, namespace: str) -> str:
        """Of all objects, or of those of a namespace."""
        chosen = f"/namespaces/{namespace}" if self.is_namespaced and namespace else ""
        return f"{self.version}{chosen}/{self.plural}"


class Lab:
    """One lab by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._kubeconfig = ""
        self._connected: apiclient.ApiClient | None = None
        self._kinds: dict[str, Kind] = {}

    def gpudeck(self, *words: str, check: bool = True, timeout: float = 600) -> str:
        """Run `gpudeck …` and return its standard output."""
        return self._run([str(GPUDECK), *words], check=check, timeout=timeout)

    def lab(self, verb: str, *words: str, check: bool = True, timeout: float = 900) -> str:
        """Run `gpudeck lab VERB --name NAME …`."""
        return self.gpudeck("lab", verb, "--name", self.name, *words, check=check, timeout=timeout)

    def kubectl(self, *words: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl against the lab with administrator rights."""
        return self._run([self.kubectl_path, *words], stdin=stdin, check=check, timeout=120)

    @property
    def kubeconfig(self) -> str:
        if not self._kubeconfig:
            self._kubeconfig = self.lab("kubeconfig").strip()
        return self._kubeconfig

    @property
    def kubectl_path(self) -> str:
        return str(toolchain.ensure(lambda _: None) / "kubectl")

    def _run(
        self, command: list[str], *, check: bool, timeout: float, stdin: str | None = None
    ) -> str:
        environment = {**os.environ}
        if self._kubeconfig:
            environment["KUBECONFIG"] = self._kubeconfig
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            input=stdin,
            timeout=timeout,
            env=environment,
        )
        if check and done.returncode != 0:
            shown = " ".join(command)
            raise AssertionError(f"{shown}\nended {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def get(self, kind: str, name: str, namespace: str = "default") -> Object | None:
        """Return the object, or None."""
        try:
            found: Object = self._read(f"{self._kind(kind).path(namespace)}/{name}")
        except errors.NotFoundError:
            return None
        return found

    def list(self, kind: str, *words: str) -> list[Object]:
        """Return the objects of a kind that kubectl's words choose, as `_CHOICE` has them."""
        chosen = _CHOICE.parse_args(words)
        path = self._kind(kind).path("" if chosen.everywhere else chosen.namespace)
        selectors = {"labelSelector": chosen.labels, "fieldSelector": chosen.fields}
        query = urlencode({name: value for name, value in selectors.items() if value})
        return list(self._read(f"{path}?{query}")["items"])

    def _read(self, path: str) -> Any:
        if self._connected is None:
            self._connected = apiclient.ApiClient(Path(self.kubeconfig))
        try:
            return self._connected.get(path)
        except errors.UnavailableError:
            return self._connected.get(path)  # The server had ended the kept connection.

    def _kind(self, name: str) -> Kind:
        """A kind by its plural or singular name, in the version that the server prefers."""
        if name not in self._kinds:
            groups = self._read("/apis")["groups"]
            told = [each["groupVersion"] for group in groups for each in group["versions"]]
            # Best first; what comes last has precedence.
            for version in reversed(["/api/v1", *(f"/apis/{each}" for each in told)]):
                for each in self._read(version)["resources"]:
                    kind = Kind(version, each["name"], each["namespaced"])
                    self._kinds |= {each["name"]: kind, each["singularName"]: kind}
        return self._kinds[name]

    def apply(self, *objects: Object) -> None:
        """Apply objects, if there are any."""
        if not objects:
            return
        self.kubectl(
            "apply",
            "-f",
            "-",
            stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}),
        )

    def delete(self, kind: str, *names: str, namespace: str = "default") -> None:
        """Delete objects and wait until they are gone."""
        self.kubectl("delete", kind, *names, "-n", namespace, "--ignore-not-found", "--wait=true")

    def eventually(self, what: str, probe: Callable[[], Any], *, seconds: float = 60) -> Any:
        """Return the first true answer of `probe`; fail with `what` and the last answer."""
        deadline = time.monotonic() + seconds
        answer: Any = None
        while time.monotonic() < deadline:
            answer = probe()
            if answer:
                return answer
            time.sleep(POLL_SECONDS)
        raise AssertionError(
            f"not within {seconds} s: {what}; last answer: {answer!r}\n{self.picture()}"
        )

    def picture(self) -> str:
        """What an administrator would look at when something does not come true."""
        return "\n".join(
            self.kubectl(*words, check=False)
            for words in (
                ("get", "pods", "-A", "-o", "wide"),
                ("get", "physicalgpus"),
                ("get", "resourceclaims", "-A"),
                ("get", "events", "-A", "--sort-by=.lastTimestamp"),
            )
        )[-8000:]

    def phase(self, name: str, namespace: str = "default") -> str:
        pod = self.get("pod", name, namespace)
        return str(pod["status"].get("phase", "")) if pod else "Gone"

    def running(self, *names: str, seconds: float = 90) -> None:
        """Wait until the pods are Running with every container ready."""

        def done() -> bool:
            pods = {pod["metadata"]["name"]: pod for pod in self.list("pods")}
            return all(name in pods and is_ready(pods[name]) for name in names)

        self.eventually(f"pods {', '.join(names)} Running", done, seconds=seconds)

    def cards_inside(self, pod: str, container: str = "") -> list[str]:
        """The UUIDs that `nvidia-smi -L` lists in a container; none without nvidia-smi."""
        chosen = ["-c", container] if container else []
        text = self.kubectl("exec", pod, *chosen, "--", "nvidia-smi", "-L", check=False)
        return _UUID.findall(text)

    def gpus(self) -> dict[str, Object]:
        """All PhysicalGPU objects by name."""
        return {each["metadata"]["name"]: each for each in self.list("physicalgpus")}

    def held(self) -> dict[str, list[str]]:
        """Which pods hold which card, by UUID, as PhysicalGPU says."""
        return {
            each["status"]["currentState"]["uuid"]: [
                pod
                for claim in each["status"].get("occupancy", {}).get("claims", [])
                for pod in claim.get("pods", [])
            ]
            for each in self.gpus().values()
            if each.get("status", {}).get("currentState", {}).get("uuid")
        }

    def all_free(self) -> bool:
        """Whether every card is Free and no claim of ours is left prepared on any node."""
        states = [
            gpu.get("status", {}).get("occupancy", {}).get("state") for gpu in self.gpus().values()
        ]
        return bool(states) and all(state == "Free" for state in states)


def two_nodes(name: str, *options: str) -> Iterator[Lab]:
    """Boot a lab with 8 H100 and 4 A100, install gpudeck, and end it afterwards.

    `GPUDECK_TEST_LAB=NAME` takes a lab that runs already and leaves it running.
    """
    given = os.environ.get("GPUDECK_TEST_LAB")
    lab = Lab(given or name)
    try:
        if not given:
            lab.lab("down")
            machines = ("--machine", "h100-x8", "--machine", "a100-40gb-x4")
            lab.lab("up", *machines, *options, timeout=3000)
            lab.lab("install")
        assert lab.kubeconfig
        lab.apply(gpu_class("h100", products=["*H100*"]))
        lab.eventually("12 cards are Free", lambda: len(lab.gpus()) == 12 and lab.all_free())
        yield lab
    finally:
        if not given:
            lab.lab("down")


def is_ready(pod: Object) -> bool:
    """Whether a pod is Running and each container of it is ready."""
    statuses = pod["status"].get("containerStatuses", [])
    return (
        pod["status"].get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
        and len(statuses) == len(pod["spec"]["containers"])
        and all(status["ready"] for status in statuses)
    )


def pod(
    name: str,
    *,
    limits: dict[str, int] | None = None,
    claims: Iterable[str] = (),
    command: Iterable[str] = ("gpu-burn", "36000"),
    **spec: Any,
) -> Object:
    """A pod of one workload container; `claims` are names of ResourceClaims that exist."""
    names = list(claims)
    resources: Object = {"limits": limits or {}}
    if names:
        resources["claims"] = [{"name": claim} for claim in names]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"test": "lab"}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "main",
                    "image": "registry.lab/gpu-burn:latest",
                    "command": list(command),
                    "resources": resources,
                }
            ],
            **(
                {"resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in names]}
                if names
                else {}
            ),
            **spec,
        },
    }


def claim(name: str, device_class: str = "gpu", count: int = 1) -> Object:
    """A ResourceClaim for `count` cards of a class."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "labels": {"test": "lab"}},
        "spec": {
            "devices": {
                "requests": [
                    {"name": "gpu", "exactly": {"deviceClassName": device_class, "count": count}}
                ]
            }
        },
    }


def gpu_class(name: str, **requirements: Any) -> Object:
    """A GPUClass of NVIDIA cards."""
    return {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUClass",
        "metadata": {"name": name},
        "spec": {"vendor": "nvidia", "requirements": requirements},
    }
