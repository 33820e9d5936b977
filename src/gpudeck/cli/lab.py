# SPDX-License-Identifier: Apache-2.0
"""`gpudeck lab …`: a Kubernetes with simulated GPUs on this machine.

Each command is a thin door to `gpudeck.lab`. `cli.main` imports this module only when one
of them runs: the other commands of gpudeck work without what the lab needs. Progress goes
to the error stream; the output is what was asked for. Exit codes: 0 done, 1 failed, 2
wrong usage.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from gpudeck import errors
from gpudeck.cli import starting
from gpudeck.cli.lab_gpu import gpu
from gpudeck.lab import (
    changes,
    cluster,
    hardware,
    processes,
    report,
    state,
    supplies,
    teardown,
    toolchain,
)
from gpudeck.lab import install as installing
from gpudeck.lab.cluster import Cluster
from gpudeck.lab.progress import Progress
from gpudeck.lab.state import Lab

DEFAULT_MACHINES = ("h100-x8", "a100-40gb-x4")


class Group(click.Group):
    """A command group that prints gpudeck's errors as one line."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except errors.GpudeckError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(2 if isinstance(error, errors.InvalidError) else 1)


def named(command: Any) -> Any:
    """Give a command the option that names the lab."""
    return click.option(
        "--name",
        default="lab",
        show_default=True,
        envvar="GPUDECK_LAB",
        help="Name of the lab; several can run at once.",
    )(command)


@click.group(cls=Group)
def lab() -> None:
    """Run a real Kubernetes with simulated GPUs on this machine (needs root)."""
    starting.put_back_first()  # Locks, and what a step has begun.


@lab.command()
@click.option(
    "--machine",
    "machines",
    multiple=True,
    help="Machine of a worker node, by name or YAML file; repeat for more nodes. "
    f"Default: {' and '.join(DEFAULT_MACHINES)}.",
)
@click.option(
    "--host-root",
    type=click.Choice(["/mnt/host", "/"]),
    default="/mnt/host",
    show_default=True,
    help="Where a node has its simulated host's files.",
)
@named
def up(name: str, machines: Sequence[str], host_root: str) -> None:
    """Bring a lab up; a running one gets back what died of it."""

    _need_root()
    folder = state.folder(name)
    progress = Progress(supplies.STEPS + cluster.STEPS)
    wanted = machines or DEFAULT_MACHINES
    found, made = changes.up(
        folder, wanted, lambda: supplies.gather(progress), progress=progress, host_root=host_root
    )
    running = [node.machine for node in found.workers()]
    if not made:
        click.echo(f"Lab {name} is up already, with {_nodes(found)}.")
        if machines and list(machines) != running:
            click.echo(
                "Its machines stay as they are; change them with: gpudeck lab node add|remove",
                err=True,
            )
        return
    click.echo(f"Lab {name} is up after {progress.elapsed:.0f} s: {_nodes(found)}.")
    click.echo(f"export KUBECONFIG={shlex.quote(str(folder.kubeconfig))}")


@lab.command()
@named
def down(name: str) -> None:
    """End a lab, or what a crash left of it."""

    _need_root()
    folder = state.folder(name)
    if not folder.path.exists() and not teardown.has_leftovers(folder):
        click.echo(f"Lab {name} does not exist; nothing to do.")
        return
    with folder.locked():
        teardown.clear(folder)
    click.echo(f"Lab {name} is gone.")


@lab.command()
@named
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(name: str, as_json: bool) -> None:
    """Show a lab's nodes and processes."""

    folder = state.folder(name)
    found = report.describe(folder, state.running(folder))
    click.echo(json.dumps(found, indent=2) if as_json else report.render(found))
    if found["state"] != "up":
        sys.exit(1)


@lab.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_labs(as_json: bool) -> None:
    """List the labs of this machine."""

    found = []
    for name in state.names():
        folder = state.folder(name)
        record = folder.load()
        if record is not None:
            found.append({"name": name, "state": report.state_of(record)})
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for each in found:
        click.echo(f"{each['name']}  {each['state']}")


@lab.command()
def image() -> None:
    """Build the product's image and print where skopeo finds it."""
    _need_root()
    built = supplies.gather(Progress(supplies.STEPS)).images
    click.echo(f"oci:{built.layout}:{built.product.rpartition(':')[2]}")


@lab.command()
@named
def kubeconfig(name: str) -> None:
    """Print the path of the lab's kubeconfig."""
    folder = state.folder(name)
    state.running(folder)
    click.echo(folder.kubeconfig)


@lab.command(context_settings={"ignore_unknown_options": True})
@named
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(name: str, arguments: Sequence[str]) -> None:
    """Run kubectl in the lab: gpudeck lab kubectl -- get nodes."""
    folder = state.folder(name)
    found = state.running(folder)
    program = Path(found.binaries) / "kubectl"
    _become([str(program), *arguments], {**os.environ, "KUBECONFIG": str(folder.kubeconfig)})


@lab.command()
@named
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows.")
@click.option("--tail", type=click.IntRange(min=0), default=None, help="Only the last lines.")
@click.argument("component")
def logs(name: str, component: str, follow: bool, tail: int | None) -> None:
    """Print the log of a component.

    One of etcd, apiserver, controller-manager, scheduler, registry, or of kubelet:NODE,
    containerd:NODE, proxy:NODE, boot:NODE.
    """

    folder = state.folder(name)
    path = report.log_of(folder, state.running(folder), component)
    for text in report.read_log(path, tail=tail, follow=follow):
        click.echo(text, nl=False)


@lab.command(context_settings={"ignore_unknown_options": True})
@named
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def shell(name: str, node: str, command: Sequence[str]) -> None:
    """Open a shell in a node, or run a command there.

    For instance: gpudeck lab shell node-0 -- nvidia-smi
    """

    _need_root()
    init = report.init_of(state.running(state.folder(name)), node)
    environment = processes.environment(hardware.environment())
    environment["TERM"] = os.environ.get("TERM", "dumb")
    words = list(command) or ["bash"]
    os.chdir("/")
    _become([*processes.enter(init), *words], environment)


@lab.command()
@named
@click.option(
    "--kubeconfig", "other", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Install into this cluster instead of the lab.",
)  # fmt: skip
@click.option("--set", "values", multiple=True, help="A chart value, as Helm's --set; repeatable.")
@click.option(
    "--values", "files", multiple=True, type=click.Path(exists=True, path_type=Path),
    help="A file of chart values; repeatable.",
)  # fmt: skip
@click.option(
    "--namespace", default=installing.NAMESPACE, show_default=True, help="Where to install it."
)
def install(
    name: str,
    other: Path | None,
    values: Sequence[str],
    files: Sequence[Path],
    namespace: str,
) -> None:
    """Install or upgrade gpudeck by its chart.

    DRA is on unless a value says otherwise.
    """

    progress = Progress(installing.STEPS)
    if other is not None:
        progress.expect(1)
        with progress.step("Programs of Kubernetes"):
            binaries = toolchain.ensure(progress.detail)
        target = installing.Target(other, binaries, namespace)
        workloads = installing.install(target, progress, values=values, files=files)
    else:
        _need_root()
        with _changing(name, progress) as changed:
            progress.expect(supplies.STEPS)
            found = supplies.gather(progress)
            changed.serve_images(found.images.layout)
            target = installing.Target(changed.folder.kubeconfig, found.binaries, namespace)
            workloads = installing.install(
                target,
                progress,
                values=(*installing.lab_values(changed.lab, found.images.product), *values),
                files=files,
                expected=installing.makers_of(changed.lab),
            )
    rows = [("WORKLOAD", "READY", "IMAGE")]
    for each in workloads:
        ready, wanted, _ = installing.counts(each)
        image = each["spec"]["template"]["spec"]["containers"][0]["image"]
        rows.append((f"{each['kind']}/{each['metadata']['name']}", f"{ready}/{wanted}", image))
    click.echo(report.columns(rows))


@lab.command()
@named
@click.option(
    "--namespace", default=installing.NAMESPACE, show_default=True, help="Where it is installed."
)
def uninstall(name: str, namespace: str) -> None:
    """Uninstall gpudeck; its custom resource definitions stay."""

    _need_root()
    progress = Progress(1)
    with _changing(name, progress) as changed:
        binaries = Path(changed.lab.binaries)
        target = installing.Target(changed.folder.kubeconfig, binaries, namespace)
        click.echo(installing.uninstall(target, progress), nl=False)


@lab.group()
@named
@click.pass_context
def node(ctx: click.Context, name: str) -> None:
    """Change the nodes of a running lab."""
    ctx.obj = name


def named_too(command: Any) -> Any:
    """Let a command of a group that names the lab take the name itself too."""

    def follow(ctx: click.Context, _: click.Parameter, given: str | None) -> str:
        return given or str(ctx.obj)

    option = click.option("--name", default=None, callback=follow, help="Name of the lab.")
    return option(command)


@node.command(name="add")
@named_too
@click.argument("node_name", metavar="NAME")
@click.option("--machine", required=True, help="Machine by name or YAML file.")
def add_node(name: str, node_name: str, machine: str) -> None:
    """Add a worker node."""

    with _changing(name) as changed:
        changes.add(changed, node_name, machine)
    click.echo(f"Node {node_name} is Ready.")


@node.command(name="remove")
@named_too
@click.argument("node_name", metavar="NODE")
def remove_node(name: str, node_name: str) -> None:
    """Take a worker node out of the cluster."""

    with _changing(name) as changed:
        changes.remove(changed, node_name)
    click.echo(f"Node {node_name} is gone.")


@node.command(name="restart-kubelet")
@named_too
@click.argument("node_name", metavar="NODE")
def restart_kubelet(name: str, node_name: str) -> None:
    """Restart a node's kubelet; its containers go on."""

    with _changing(name) as changed:
        changes.restart_kubelet(changed, node_name)
    click.echo(f"The kubelet of {node_name} runs again.")


@node.command(name="reboot")
@named_too
@click.argument("node_name", metavar="NODE")
def reboot_node(name: str, node_name: str) -> None:
    """Switch a node off without warning and on again."""

    with _changing(name) as changed:
        changes.reboot(changed, node_name)
    click.echo(f"Node {node_name} is Ready again.")


lab.add_command(gpu)


def _need_root() -> None:
    if os.geteuid() != 0:
        raise errors.ForbiddenError(
            "the lab makes namespaces, mounts and device nodes and therefore needs root; "
            "run the command with sudo",
            reason="RootNeeded",
        )


@contextlib.contextmanager
def _changing(name: str, progress: Progress | None = None) -> Iterator[Cluster]:
    """Hold a running lab's lock and give its Cluster."""
    _need_root()
    folder = state.folder(name)
    if state.running(folder).phase != "up":
        raise errors.UnavailableError(
            f"lab {name} is half made: its `lab up` did not end; run: gpudeck lab up --name {name}",
            reason="LabHalfMade",
        )
    with folder.locked():
        yield Cluster(folder, state.running(folder), progress or Progress())


def _nodes(found: Lab) -> str:
    return ", ".join(f"{node.name} ({node.machine})" for node in found.workers()) or "no worker"


def _become(command: Sequence[str], environment: dict[str, str]) -> NoReturn:
    """Replace this process, so that signals, terminal and exit code are the program's own."""
    sys.stdout.flush()
    os.execvpe(command[0], list(command), environment)
