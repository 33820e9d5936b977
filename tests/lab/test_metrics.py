# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus reads the metrics of every process with the token of a ServiceAccount.

Prometheus is Debian's, from the machine or unpacked from its package; it runs inside a
node of the lab, so nothing of it leaves the lab's namespaces.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.support.lab import NAMESPACE, Lab, Object

from gpudeck.lab import processes, state

ADDRESS = "127.0.0.1:9099"
PROCESSES = {
    "gpudeck_controller_leading": 1,
    "gpudeck_agent_scan_success": 2,
    "gpudeck_dra_registered": 2,
    "gpudeck_adapter_driver_ready": 2,
    "gpudeck_gfd_config_valid": 2,
    "gpudeck_features_leading == 1": 1,
}
"""One metric of each process that is 1 where all is well, and how many serve it."""
ASK = """
import json, ssl, sys, urllib.request
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
def asked(url, token):
    given = {"Authorization": "Bearer " + token} if token else {}
    request = urllib.request.Request(url, headers=given)
    try:
        with urllib.request.urlopen(request, context=context, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except urllib.error.URLError as error:
        return 0, str(error.reason)
print(json.dumps([asked(*each) for each in json.load(sys.stdin)]))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Prometheus of this machine, or that of Debian's package, unpacked."""
    installed = shutil.which("prometheus")
    if installed:
        return Path(installed)
    folder = tmp_path_factory.mktemp("prometheus")
    for command in (["apt-get", "download", "prometheus"], ["dpkg", "-x", "*.deb", "."]):
        words = [str(each) for word in command for each in _expanded(folder, word)]
        try:
            done = subprocess.run(
                words, cwd=folder, capture_output=True, text=True, timeout=120, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"there is no Prometheus, and its package cannot be had: {error}")
        if done.returncode != 0:
            pytest.skip(f"there is no Prometheus, and its package cannot be had: {done.stderr}")
    return folder / "usr/bin/prometheus"


def _expanded(folder: Path, word: str) -> list[Path | str]:
    return sorted(folder.glob(word)) if "*" in word else [word]


@pytest.fixture
def reader(lab: Lab) -> Iterator[str]:
    """A token that may read metrics."""
    lab.apply(*account("scraper"), binding("scraper"))
    yield lab.kubectl("create", "token", "scraper").strip()
    lab.kubectl("delete", "serviceaccount,clusterrolebinding", "-l", "test=metrics")


def account(name: str) -> list[Object]:
    labels = {"test": "metrics"}
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": "default", "labels": labels},
        }
    ]


def binding(name: str) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{name}-reads-metrics", "labels": {"test": "metrics"}},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "gpudeck-metrics-reader",
        },
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    }


def addresses(lab: Lab) -> list[str]:
    """Of the pods that say that they serve metrics."""
    return [
        each["status"]["podIP"]
        for each in lab.list("pods", "-n", NAMESPACE)
        if any(
            port.get("name") == "metrics"
            for container in each["spec"]["containers"]
            for port in container.get("ports", [])
        )
    ]


def in_node(lab: Lab) -> list[str]:
    """What runs a program of this machine in the network of node-0, where the pods are."""
    node = state.running(state.folder(lab.name)).node("node-0")
    assert node.init is not None
    return processes.enter(node.init, ["--net"])


def asked(lab: Lab, *requests: tuple[str, str]) -> list[tuple[int, str]]:
    """Ask for pages, each by URL and token, from inside the node; status 0 if nobody answers."""
    said = subprocess.run(
        [*in_node(lab), sys.executable, "-c", ASK],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return [(status, body) for status, body in json.loads(said.stdout)]


@pytest.fixture
def prometheus(lab: Lab, program: Path, reader: str, tmp_path: Path) -> Iterator[None]:
    """Prometheus at work in node-0."""
    (tmp_path / "token").write_text(reader)
    scrape: dict[str, Any] = {
        "job_name": "gpudeck",
        "scheme": "https",
        "tls_config": {"insecure_skip_verify": True},
        "authorization": {"credentials_file": str(tmp_path / "token")},
        "static_configs": [{"targets": [f"{each}:8443" for each in addresses(lab)]}],
    }
    settings = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]}
    (tmp_path / "prometheus.yml").write_text(json.dumps(settings))
    words = [
        f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address={ADDRESS}",
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*in_node(lab), str(program), *words], stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()  # nsenter became Prometheus; it has no process of its own.
        process.wait(timeout=30)


def values(lab: Lab, query: str) -> list[float]:
    """The values of a query's series now."""
    url = f"http://{ADDRESS}/api/v1/query?query={quote(query)}"
    ((status, body),) = asked(lab, (url, ""))
    if status != 200:
        return []  # It has not opened its port yet.
    return [float(each["value"][1]) for each in json.loads(body)["data"]["result"]]


def test_prometheus_scrapes_every_process(lab: Lab, prometheus: None) -> None:
    pods = len(addresses(lab))
    lab.eventually("every pod of gpudeck is scraped", lambda: values(lab, "up") == [1.0] * pods)
    for metric, count in PROCESSES.items():
        assert values(lab, metric) == [1.0] * count
    assert values(lab, "count(gpudeck_adapter_card_healthy == 1)") == [12.0]


def test_a_token_without_the_right_and_no_token_read_nothing(lab: Lab, reader: str) -> None:
    lab.apply(*account("nobody"))
    nobody = lab.kubectl("create", "token", "nobody").strip()
    for address in addresses(lab):
        url, plain = f"https://{address}:8443/metrics", f"http://{address}:8080"
        tokens = [(url, each) for each in ("", "made-up", nobody, reader)]
        answers = asked(lab, *tokens, (f"{plain}/healthz", ""), (f"{plain}/metrics", ""))
        assert [status for status, _ in answers] == [401, 401, 403, 200, 200, 404]
        assert "system:serviceaccount:default:nobody may not get /metrics" in answers[2][1]
        assert answers[4][1] == "ok"
