# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.admission [--rate N]`: how long the webhooks of one replica take.

A process of its own serves the pages over TLS, as the controller does, with the cards of
5,000 nodes in memory; questions come at a steady rate over a few kept connections, as from
API servers, whether the ones before are answered or not. Nothing is written: the page
that makes templates asks the API server, whose time it is.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import sys
import time
from typing import Any, cast

import aiohttp
import click
import msgspec
import uvloop
from tests.support import gpus

from benchmarks import processes, writing
from benchmarks.figures import Figure, percentile, signed, started
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.controller import keeping, selfsigned
from gpudeck.controller.admission import naming, registration, reviews
from gpudeck.controller.admission.fleet import Fleet
from gpudeck.kube import serving, webhooks
from gpudeck.kube.client import Client

NODES, CARDS = 5000, 8
SECONDS = 10.0
CONNECTIONS = 8
CLASSES = 20
QUESTIONS = {
    registration.PODS: (
        "pods",
        {"spec": {"containers": [{"name": "a", "resources": {"limits": {"example.com/c0": 1}}}]}},
    ),
    registration.CLAIMS: (
        "resourceclaims",
        {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c1"}}]}}},
    ),
}


@click.command()
@click.option("--rate", default=500, show_default=True, help="Questions a second.")
@click.option("--record/--no-record", default=True, help="Write results.json and README.md.")
@click.option("--serve", type=int, hidden=True, help="Serve on this port, for the measurement.")
def main(rate: int, record: bool, serve: int | None) -> None:
    """Measure the webhooks at a steady rate."""
    if serve is not None:
        uvloop.run(_serve(serve))
        return
    before = started()
    found = uvloop.run(_measure(rate))
    command = f"python -m benchmarks.admission --rate {rate}"
    writing.tell(signed(found, command, before), record=record)


async def _serve(port: int) -> None:
    fleet = Fleet()
    for node in range(NODES):
        for index in range(CARDS):
            raw = gpus.gpu(node=f"node-{node}", address=f"0000:{0x1B + 16 * index:02x}:00.0")
            fleet.change(None, keeping.gpu(msgspec.convert(raw, PhysicalGPU)))
    classes = {
        f"c{index}": msgspec.convert(gpus.gpu_class(f"c{index}"), GPUClass)
        for index in range(CLASSES)
    }
    names = naming.Names(classes, {f"example.com/{name}": classes[name] for name in classes}, {})
    # None of the pages asked for here speaks to the API server.
    nobody = cast(Client, None)
    pages = reviews.Reviews(nobody, lambda: names, fleet, refuse_impossible=True).pages()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load(tls, selfsigned.make("localhost", 1))
    await webhooks.serve(port, pages, tls)


async def _measure(rate: int) -> list[Figure]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = (sys.executable, "-m", "benchmarks.admission", "--serve", str(port))
    server = await asyncio.create_subprocess_exec(*command)
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=False)
    try:
        async with aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=connector) as api:
            await _ready(api)
            found = []
            for path in QUESTIONS:
                before = processes.cpu_seconds(server.pid)
                times = await _asked(api, path, rate)
                spent = processes.cpu_seconds(server.pid) - before
                found += _figures(path, rate, times, spent)
            return found
    finally:
        server.terminate()
        await server.wait()


async def _ready(api: aiohttp.ClientSession) -> None:
    path = next(iter(QUESTIONS))
    while True:
        try:
            await _ask(api, path, b"{}")
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(0.1)
        else:
            return


async def _ask(api: aiohttp.ClientSession, path: str, body: bytes) -> tuple[float, bytes]:
    started = time.perf_counter()
    async with api.post(path, data=body) as answer:
        text = await answer.read()
    return time.perf_counter() - started, text


async def _asked(api: aiohttp.ClientSession, path: str, rate: int) -> list[float]:
    """Ask at a steady rate; the seconds until each answer."""
    resource, body = QUESTIONS[path]
    request: dict[str, Any] = {"uid": "u", "resource": {"resource": resource}, "object": body}
    question = json.dumps({"kind": "AdmissionReview", "request": request}).encode()
    asked: list[asyncio.Task[tuple[float, bytes]]] = []
    begin = time.perf_counter()
    for index in range(int(rate * SECONDS)):
        await asyncio.sleep(max(0.0, begin + index / rate - time.perf_counter()))
        asked.append(asyncio.create_task(_ask(api, path, question)))
    answers = [await each for each in asked]
    refused = [text for _, text in answers if b'"allowed":true' not in text]
    if refused:
        raise click.ClickException(f"{path} answered {refused[0]!r}")
    return [seconds for seconds, _ in answers]


def _figures(path: str, rate: int, times: list[float], spent: float) -> list[Figure]:
    note = f"{rate} a second, {NODES * CARDS} cards, {CLASSES} classes"
    rows = [
        ("p50", "p50", percentile(times, 0.5)),
        ("p99", "p99", percentile(times, 0.99)),
        ("cpu", "CPU a question", spent / len(times)),
    ]
    return [
        Figure(
            key=f"admission_{key}_{path[1:]}_{rate}",
            group="Admission",
            what=f"webhook {path}, {what}",
            unit="ms",
            values=[value * 1000],
            note=note,
        )
        for key, what, value in rows
    ]


if __name__ == "__main__":
    main()
