"""`rlscaler scheduler run`, `latency`, `config`, `explain` and `replay`: the programs that serve kube-scheduler."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import yaml
from pydantic import ValidationError
from pydantic_settings import BaseSettings

from rlscaler_core.options import FILE, PRESENT_FILE, PRESENT_FOLDER, output_option
from rlscaler_core.placement.policies import Policy
from rlscaler_scheduler.configuration import configuration
from rlscaler_scheduler.settings import NODE_QUERIES, LatencySettings, SchedulerError, Settings

S = TypeVar("S", bound=BaseSettings)


def _settings(kind: type[S], options: Mapping[str, Any]) -> S:
    """Make settings of the options that were given; the others come from the environment. Raises UsageError."""
    try:
        return kind(**{name: value for name, value in options.items() if value not in (None, ())})
    except ValidationError as error:
        first = error.errors()[0]
        raise click.UsageError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _serve(serve: Callable[[S], Coroutine[Any, Any, None]], settings: S) -> None:
    """Run a server until it is stopped. Raises ClickException where it cannot begin."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(serve(settings))
    except SchedulerError as error:
        raise click.ClickException(str(error)) from error


@click.command()
@click.option("--kubeconfig", type=PRESENT_FILE, help="Kubeconfig of the cluster.")
@click.option("--host", help="Address that is listened on.")
@click.option("--port", type=int, help="Port for kube-scheduler, suggestions, metrics and probes; 0 = any.")
@click.option("--policy", type=click.Choice(list(Policy)), help="Policy of pods that name none.")
@click.option("--scheduler-name", "scheduler_names", multiple=True, help="Score pods of this schedulerName alone.")
@click.option("--model-dir", type=PRESENT_FOLDER, help="Folder of networks.")
@click.option(
    "--rule",
    "rules",
    multiple=True,
    type=(click.Choice(list(Policy)), str),
    help="Rule that acts for a policy, such as `--rule EE least-extension` or `--rule EL latency-fit`.",
)
@click.option("--gpu-resource", help="Extended resource that counts whole GPUs.")
@click.option("--gpu-milli-resource", help="Extended resource that counts thousandths of GPUs.")
@click.option("--prometheus-url", help="Prometheus that node metrics are read from.")
@click.option(
    "--prometheus-credentials",
    type=PRESENT_FOLDER,
    help="Folder with its credentials: token, or username and password; ca.crt; tls.crt, tls.key.",
)
@click.option(
    "--node-query", "node_queries", multiple=True, type=(click.Choice(NODE_QUERIES), str), help="PromQL of one of them."
)
@click.option("--balance", type=click.Choice(["requests", "use"]), help="Quantity that the rule of LB balances.")
@click.option(
    "--tls-folder",
    type=PRESENT_FOLDER,
    help="Folder with tls.crt, tls.key and ca.crt, the authority of callers that are let in.",
)
@click.option("--caller-token-file", type=PRESENT_FILE, help="Token that kube-scheduler's plugin has to send.")
@click.option("--token-file", type=PRESENT_FILE, help="Token for PUT /suggestions.")
@click.option("--largest-call-mib", type=float, help="Mebibytes of the longest call that is read; 4 without it.")
@click.option("--decision-log", type=FILE, help="Write a JSON line per decision.")
@click.option(
    "--decision-log-inputs", is_flag=True, default=None, help="Write the inputs of `scheduler replay` into each line."
)
def run(**options: Any) -> None:
    """Suggest nodes for pods to kube-scheduler until SIGTERM.

    Every option can also be set as RLSCALER_SCHEDULER_<NAME> in the environment.
    """
    from rlscaler_scheduler.server import run as serve

    for name in ("node_queries", "rules"):
        options[name] = dict(options[name]) or None
    _serve(serve, _settings(Settings, options))


@click.command()
@click.option("--kubeconfig", type=PRESENT_FILE, help="Kubeconfig of the cluster.")
@click.option("--node", help="Name of the node that this runs on.")
@click.option("--target", "targets", multiple=True, help="Where users are: NAME=HOST:PORT or NAME=URL (repeatable).")
@click.option("--interval", "interval_seconds", type=float, help="Seconds between two rounds of measuring.")
@click.option("--samples", type=int, help="Round trips of a round to each target; their median counts.")
@click.option("--expire", "expire_seconds", type=float, help="Seconds for which a written value is believed.")
@click.option("--host", help="Address that is listened on.")
@click.option("--port", type=int, help="Port for metrics and probes; 0 = any.")
def latency(**options: Any) -> None:
    """Measure how far users are from this node, and write it to the node, until SIGTERM.

    Every option can also be set as RLSCALER_LATENCY_<NAME> in the environment, targets separated by commas.

    \b
    rlscaler scheduler latency --node edge-1 --target berlin=berlin.example.com:443 \\
      --target lyon=https://lyon.example.com/ping
    """
    from rlscaler_scheduler.latency import run as measure

    _serve(measure, _settings(LatencySettings, options))


@click.command()
@click.option(
    "--url", default="http://127.0.0.1:8899", show_default=True, help="Where kube-scheduler finds the server."
)
@click.option("--plugin", is_flag=True, help="For rlscaler's build of kube-scheduler, which has the score plugin.")
@click.option("--whole-cluster", is_flag=True, help="For the cluster's only kube-scheduler, not for a second one.")
@click.option("--timeout-ms", type=click.IntRange(1), default=100, show_default=True, help="Longest wait for a call.")
@click.option(
    "--strict", is_flag=True, help="Extender: schedule nothing while the server is away: no hard latency is exceeded."
)
@click.option("--events", is_flag=True, help="Plugin: write an Event on each pod, why its node was suggested.")
@click.option("--kubeconfig", default="", help="Kubeconfig of kube-scheduler; empty = its service account.")
@click.option(
    "--credentials", default="", help="Folder of kube-scheduler with ca.crt, tls.crt and tls.key, shown to the server."
)
@click.option("--token-file", default="", help="Plugin: file of kube-scheduler with the token that it sends.")
def config(**options: Any) -> None:
    """Print the KubeSchedulerConfiguration that makes kube-scheduler ask the server."""
    try:
        told = configuration(**options)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    click.echo(yaml.safe_dump(told, sort_keys=False), nl=False)


@click.command()
@click.argument("paths", nargs=-1, required=True, type=PRESENT_FILE)
@click.option("--model-dir", type=PRESENT_FOLDER, help="Folder of networks.")
def replay(paths: tuple[Path, ...], model_dir: Path | None) -> None:
    """Make the suggestions in decision logs again, and say which come out otherwise than recorded.

    The server has to have written them with --decision-log-inputs.
    """
    from rlscaler_scheduler.replay import repeat
    from rlscaler_scheduler.server import load_networks

    try:
        actors = load_networks(model_dir).actors
    except SchedulerError as error:
        raise click.ClickException(str(error)) from error
    failed = 0
    for path in paths:
        with path.open(encoding="utf-8", errors="replace") as lines:
            repeated = repeat(lines, actors)
        for difference in repeated.different:
            click.echo(f"{path}: {difference}", err=True)
        failed += len(repeated.different)
        click.echo(f"{path}: {repeated.same} came out as recorded, {len(repeated.different)} did not")
        if repeated.without_inputs:
            click.echo(f"{path}: {repeated.without_inputs} were written without --decision-log-inputs", err=True)
    if failed:
        raise click.ClickException(f"{failed} suggestions did not come out as recorded")


@click.command()
@click.argument("pod")
@click.option("-n", "--namespace", default="default", show_default=True, help="The pod's namespace.")
@click.option("--server", default="http://127.0.0.1:8899", show_default=True, help="The suggestion server.")
@click.option(
    "--credentials", type=PRESENT_FOLDER, help="Folder with what the server asks for: token; ca.crt; tls.crt, tls.key."
)
@click.option(
    "--decision-log", "logs", multiple=True, type=PRESENT_FILE, help="Read this file, not the server (repeatable)."
)
@output_option
def explain(
    pod: str, namespace: str, server: str, credentials: Path | None, logs: tuple[Path, ...], output: str
) -> None:
    """Show why POD was suggested its node, or would be where it is pending.

    \b
    kubectl port-forward service/rlscaler-scheduler 8899 &
    rlscaler scheduler explain web-1 -n shop
    rlscaler scheduler explain web-1 -n shop --decision-log /var/log/rlscaler/suggestions.jsonl
    """
    from rich.console import Console

    from rlscaler_scheduler.explain import NotFoundError, ask, newest, page

    try:
        if logs:
            match = None
            for path in logs:
                with path.open(encoding="utf-8", errors="replace") as lines:
                    match = newest(lines, namespace, pod) or match
            if match is None:
                raise NotFoundError(f"no suggestion for {namespace}/{pod} in {', '.join(map(str, logs))}")
            record = match
        else:
            record = ask(server, namespace, pod, credentials)
    except NotFoundError as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        click.echo(json.dumps({name: value for name, value in record.items() if name != "inputs"}, indent=2))
    else:
        Console(soft_wrap=True).print(page(record))
