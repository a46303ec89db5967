"""`rlscaler cluster`."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from rlscaler_core.options import output_option
from rlscaler_dev.exceptions import DevClusterError, NotRunningError

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_NAME = "rlscaler"
SOURCES = ("auto", "release", "build")
NODES = ("kwok", "real")


def _name_option(command: Command) -> Command:
    return click.option("--name", default=DEFAULT_NAME, show_default=True, help="Name of the cluster.")(command)


_source_option = click.option(
    "--source",
    type=click.Choice(SOURCES),
    help="Where binaries may come from.  [default: $RLSCALER_BINARIES or auto]",
)


@click.group()
def cluster() -> None:
    """A real Kubernetes control plane on this machine, without containers."""


@cluster.command()
@_name_option
@click.option("--gpu-nodes", type=click.IntRange(0, 1000), default=2, show_default=True)
@click.option("--gpus-per-node", type=click.IntRange(1, 64), default=8, show_default=True)
@click.option("--cpu-nodes", type=click.IntRange(0, 1000), default=2, show_default=True)
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Use this existing cluster; nothing is started but Prometheus beside it.",
)
@click.option("--prometheus/--no-prometheus", default=True, show_default=True, help="Only with --kubeconfig.")
@click.option(
    "--node",
    type=click.Choice(NODES),
    help="'real' adds a kubelet with containers beside the played nodes; needs root and `make e2e-packages`.",
)
@click.option("--real-gpus", type=click.IntRange(0, 1000), default=16, show_default=True, help="With --node real.")
@click.option("--adapter", is_flag=True, help="Serve Prometheus as external metrics for HorizontalPodAutoscalers.")
@click.option("--kafka", is_flag=True, help="Also a Kafka broker; needs Java 17, and Maven the first time.")
@_source_option
@output_option
def up(name: str, output: str, kubeconfig: Path | None, **options: Any) -> None:
    """Start the cluster, or show it when it runs already."""
    from rlscaler_dev.cluster import api
    from rlscaler_dev.cluster.progress import ConsoleReporter

    info = api.up(name, kubeconfig, progress=ConsoleReporter(), **options)
    _show(info, output)


@cluster.command()
@_name_option
@click.option("--all", "every", is_flag=True, help="Every cluster that was started here.")
def down(name: str, every: bool) -> None:
    """Stop the cluster and delete its files."""
    from rlscaler_dev.cluster import api

    for each in api.names() if every else [name]:
        click.echo(f"{each} stopped" if api.down(each) else f"{each} was not running")


@cluster.command()
@_name_option
@click.option("--all", "every", is_flag=True, help="Every cluster that was started here.")
@output_option
def status(name: str, every: bool, output: str) -> None:
    """Show the cluster; exit code 1 when it does not run or is not healthy."""
    from rlscaler_dev.cluster import api

    if not every:
        _show(api.status(name), output)
        return
    details: dict[str, Any] = {}
    for each in api.names():
        try:
            details[each] = api.status(each).to_json()
        except NotRunningError as error:
            details[each] = {"name": each, "error": error.message}
    if output == "json":
        click.echo(json.dumps(list(details.values()), indent=2))
    else:
        for each, content in details.items():
            click.echo(f"{each}: {content.get('error') or content['server']}")


@cluster.command()
@_name_option
def kubeconfig(name: str) -> None:
    """Print the kubeconfig's path: export KUBECONFIG=$(rlscaler cluster kubeconfig)."""
    from rlscaler_dev.cluster import api

    click.echo(api.status(name).kubeconfig)


@cluster.command("exec", context_settings={"ignore_unknown_options": True})
@_name_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(name: str, command: tuple[str, ...]) -> None:
    """Run COMMAND inside the real node: rlscaler cluster exec -- curl http://10.96.0.7."""
    from rlscaler_dev.cluster import api

    argv = api.inside(name, command)
    os.execvp(argv[0], argv)


@cluster.command()
@_name_option
@click.argument("archives", nargs=-1, required=True, type=click.Path(path_type=Path))
def load(name: str, archives: tuple[Path, ...]) -> None:
    """Import image archives (OCI or Docker) into the real node."""
    from rlscaler_dev.cluster import api

    for line in api.load_images(name, *archives):
        click.echo(line)


@cluster.command()
@click.option("--install", "install_them", is_flag=True, help="Install those that are missing, with apt-get, as root.")
def packages(install_them: bool) -> None:
    """Show the distribution's packages that the real node and the building of images need."""
    from rlscaler_dev.cluster.realnode import packages as required

    absent = required.missing()
    if install_them and absent:
        required.install(absent)
        absent = required.missing()
    for package in required.PACKAGES:
        lacking = package.missing()
        click.echo(f"{package.name:<28} {package.purpose:<8} {'lacks ' + ', '.join(lacking) if lacking else 'there'}")
    if absent:
        raise DevClusterError(f"`make e2e-packages` installs {required.names(absent)}")


@cluster.command()
@click.argument("tools", nargs=-1)
@click.option(
    "--node", type=click.Choice(NODES), default="kwok", show_default=True, help="'real': also what that runs."
)
@_source_option
@output_option
def build(tools: tuple[str, ...], node: str, source: str | None, output: str) -> None:
    """Get the binaries (all that a cluster runs, and kubectl) without starting anything."""
    from rlscaler_dev.cluster import binaries, manifests
    from rlscaler_dev.cluster.progress import ConsoleReporter
    from rlscaler_dev.cluster.versions import CONTROL_PLANE, REAL_NODE, TOOLS

    if unknown := sorted(set(tools) - set(TOOLS)):
        raise click.UsageError(f"no such tool: {', '.join(unknown)}; there are {', '.join(TOOLS)}")
    reporter = ConsoleReporter()
    every = (*CONTROL_PLANE, "kubectl", *(REAL_NODE if node == "real" else ()))
    provided = binaries.provide(tools or every, reporter, source)
    if not tools:
        manifests.GATEWAY.manifests(reporter)
    if output == "json":
        click.echo(json.dumps(provided, indent=2))
        return
    for tool, binary in provided.items():
        click.echo(f"{tool:<24} {binary['version']:<10} {binary['source']:<8} {binary['path']}")


@cluster.command()
@output_option
def images(output: str) -> None:
    """Build the container images of the operator and of the emulated service; needs root, buildah and debootstrap."""
    from rlscaler_dev.cluster.images import make
    from rlscaler_dev.cluster.progress import ConsoleReporter

    archives = make.build(ConsoleReporter())
    measured = {name: {"archive": str(file), **make.sizes(name)} for name, file in archives.items()}
    click.echo(json.dumps(measured, indent=2) if output == "json" else make.table(measured))


@cluster.command()
@click.option("--go", is_flag=True, help="Go's caches and toolchain: most of the space; building again takes minutes.")
@click.option("--binaries", is_flag=True, help="The binaries.")
@click.option("--images", is_flag=True, help="The container images and what they are built in.")
@click.option("--kafka", is_flag=True, help="Kafka's jars.")
@click.option("--everything", is_flag=True, help="All of it, after stopping all clusters.")
def clean(everything: bool, **parts: bool) -> None:
    """Remove the binaries, images and manifests of this cache. Nothing outside our own cache directory is touched."""
    chosen = [part for part, wanted in parts.items() if wanted or everything]
    if not chosen:
        raise click.UsageError("name the parts to remove: --go, --binaries, --images, --kafka or --everything")
    for line in remove_built(chosen, clusters=everything):
        click.echo(line)


def _show(info: Any, output: str) -> None:
    if output == "json":
        click.echo(json.dumps(info.to_json(), indent=2))
        return
    click.echo(f"cluster     {info.name} (Kubernetes {info.server_version}, {info.server})")
    if info.prometheus_url:
        click.echo(f"prometheus  {info.prometheus_url}, scrapes {info.prometheus_targets_dir}/*.json")
    if info.gateway_url:
        click.echo(f"gateway     {info.gateway_url}")
    if info.kafka:
        click.echo(f"kafka       {info.kafka} (with TLS and a password: {info.kafka_protected})")
    if info.kafka_for_pods:
        click.echo(f"            {info.kafka_for_pods} for pods of the real node")
    if info.managed:
        click.echo(f"started in  {info.start_seconds:.1f} s, files in {info.state_dir}")
    click.echo(f"export KUBECONFIG={info.kubeconfig}")


FOLDERS = {"go": ("go",), "binaries": ("bin", "manifests"), "images": ("images",), "kafka": ("kafka",)}
"""Folders of our cache by the option of `clean` that removes them."""


def remove_built(parts: Sequence[str], clusters: bool = False) -> Iterator[str]:
    """Remove parts of our cache, after the clusters where they go too; yields a line for each.

    Raises DevClusterError when the binaries of a running cluster would go.
    """
    from rlscaler_dev.cluster import api, builder, paths

    if clusters:
        for name in api.names():
            api.down(name)
            yield f"stopped {name}"
    if {"binaries", "kafka"} & set(parts) and (running := api.names()):
        raise DevClusterError(
            f"clusters {', '.join(running)} use files that would be removed: `rlscaler cluster down --all` first"
        )
    for folder in (paths.cache_root() / name for part in parts for name in FOLDERS[part]):
        if folder.is_dir():
            freed = builder.size_mb(folder)
            remove_tree(folder)
            yield f"removed {folder} ({freed} MB)"


def remove_tree(directory: Path) -> None:
    """Delete a tree although Go's module cache marks its folders read-only."""
    for folder, _, _ in os.walk(directory):
        os.chmod(folder, os.stat(folder).st_mode | stat.S_IRWXU)
    shutil.rmtree(directory)
