"""`rlscaler service` and `rlscaler load`."""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from rlscaler_loadgen.streams.cli import PATTERN_NAMES, consumers, produce

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


@click.group()
def service() -> None:
    """Run the emulated inference service (Open Inference Protocol v2 over HTTP), or emulated consumers of Kafka."""


service.add_command(consumers)


def common(command: Any) -> Any:
    """Options of both ways to run the service."""
    options = [
        click.option("--name", default="chat", show_default=True, help="Value of the `service` label."),
        click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on."),
        click.option("--port", default=8080, show_default=True, help="Port of the API; 0 takes a free one."),
        click.option("--metrics-port", default=9090, show_default=True, help="Port of /metrics; 0 takes a free one."),
        click.option("--seed", default=0, show_default=True, help="Seed of the service times."),
        click.option("--slo-ms", default=1000.0, show_default=True, help="Gives the histogram a bucket at the SLO."),
        click.option("--variation", default=0.5, show_default=True, help="Service time's coefficient of variation."),
        click.option("--queue", default=64, show_default=True, help="Requests that may wait at one replica."),
        click.option("--model", "models", multiple=True, help="Model that is served (repeatable); any by default."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@service.command()
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Cluster to watch; in-cluster by default.")
@click.option("--namespace", default="default", show_default=True)
@click.option("--gpu-deployment", help="Deployment whose ready pods are the GPU pool; none without one.")
@click.option("--cpu-deployment", help="Deployment whose ready pods are the CPU pool; none without one.")
@click.option(
    "--http-route",
    help="HTTPRoute whose weights share the load, with the Deployments' names; by ready capacity without one.",
)
@click.option("--gpu-ms", default=50.0, show_default=True, help="Mean service time of a GPU replica.")
@click.option("--cpu-ms", default=250.0, show_default=True, help="Mean service time of a CPU replica.")
@click.option(
    "--slowdown",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Factor on the service times of both pools, as by a new version of the model.",
)
@click.option(
    "--slowdown-after", default=0.0, show_default=True, help="Seconds from the first request on until that factor."
)
@common
def fleet(
    kubeconfig: str | None,
    namespace: str,
    gpu_deployment: str | None,
    cpu_deployment: str | None,
    http_route: str | None,
    gpu_ms: float,
    cpu_ms: float,
    slowdown: float,
    slowdown_after: float,
    **options: Any,
) -> None:
    """One process answers for all ready pods of one or two Deployments (for clusters whose nodes are simulated)."""
    from rlscaler_loadgen.service.app import Service, one_pool
    from rlscaler_loadgen.service.fleet import Fleet, run_fleet
    from rlscaler_loadgen.service.replica import CPU, GPU, Slowdown
    from rlscaler_loadgen.service.router import Router

    named = {"gpu": gpu_deployment, "cpu": cpu_deployment}
    deployments = {pool: name for pool, name in named.items() if name is not None}
    if not deployments:
        raise click.UsageError("name --gpu-deployment, --cpu-deployment or both")
    flavours = {
        "gpu": replace(GPU, mean_seconds=gpu_ms / 1000, queue=options["queue"]),
        "cpu": replace(CPU, mean_seconds=cpu_ms / 1000, queue=options["queue"]),
    }
    cluster = Fleet(kubeconfig, namespace, deployments, http_route)

    async def main() -> None:
        only = one_pool(next(iter(deployments))) if len(deployments) == 1 else None
        slower = Slowdown(slowdown, slowdown_after)
        router = Router(flavours, options["seed"], options["variation"], weights=only, slowdown=slower)
        running = Service(
            router, namespace, options["name"], options["slo_ms"] / 1000, tuple(deployments), options["models"]
        )
        await run_fleet(cluster, running, _listen(options), _announce(f"fleet {namespace}/{options['name']}"))

    _run(main)


@service.command()
@click.option("--flavour", type=click.Choice(["gpu", "cpu"]), required=True, help="Kind of the replica.")
@click.option("--namespace", envvar="POD_NAMESPACE", default="default", show_default=True)
@click.option("--pod", envvar=["POD_NAME", "HOSTNAME"], default="local", show_default=True, help="Name of this pod.")
@click.option("--mean-ms", type=float, help="Mean service time.  [default: 50 (gpu), 250 (cpu)]")
@click.option("--concurrency", default=1, show_default=True, help="Requests worked on at once.")
@click.option(
    "--cold-start",
    nargs=2,
    type=float,
    default=(0.0, 0.0),
    show_default=True,
    help="Seconds until ready, drawn between the two.",
)
@click.option(
    "--resource-metrics/--no-resource-metrics",
    default=True,
    show_default=True,
    help="Export cAdvisor, kube-state-metrics and DCGM names for this pod.",
)
@common
def pod(
    flavour: str,
    namespace: str,
    pod: str,
    mean_ms: float | None,
    concurrency: int,
    cold_start: tuple[float, float],
    resource_metrics: bool,
    **options: Any,
) -> None:
    """One process is one replica."""
    from rlscaler_loadgen.service.app import pod_service, run_until_signal
    from rlscaler_loadgen.service.replica import FLAVOURS

    base = FLAVOURS[flavour]
    mean = base.mean_seconds if mean_ms is None else mean_ms / 1000
    kind = replace(base, mean_seconds=mean, concurrency=concurrency, queue=options["queue"])

    async def main() -> None:
        running, work = pod_service(
            kind,
            namespace,
            pod,
            options["name"],
            options["seed"],
            cold_start,
            variation=options["variation"],
            slo_seconds=options["slo_ms"] / 1000,
            models=options["models"],
            resource_metrics=resource_metrics,
        )
        await run_until_signal(running, _listen(options), _announce(f"pod {namespace}/{pod} ({flavour})"), work)

    _run(main)


def _listen(options: dict[str, Any]) -> Any:
    from rlscaler_loadgen.service.app import Listen

    return Listen(options["host"], options["port"], options["metrics_port"])


def _announce(what: str) -> Any:
    def ready(api: str, metrics: str) -> None:
        click.echo(f"{what}: serving {api}, metrics {metrics}")
        sys.stdout.flush()

    return ready


def _run(main: Any) -> None:
    from rlscaler_loadgen.errors import LoadgenError

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(main())
    except LoadgenError as error:
        raise click.ClickException(str(error)) from error


@click.group()
def load() -> None:
    """Send requests to an inference service, or messages to a Kafka topic, following a pattern."""


load.add_command(produce)


@load.command("run")
@click.option("--host", required=True, help="Base URL of the service, http://HOST:PORT.")
@click.option("--pattern", type=click.Choice(PATTERN_NAMES), default="spike", show_default=True)
@click.option("--duration", default=300, show_default=True, help="Seconds.")
@click.option("--seed", default=1, show_default=True, help="Seed of pattern and arrivals.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default="results/load", show_default=True)
@click.option("--low", default=10.0, show_default=True, help="Lowest load in requests/s.")
@click.option("--peak", default=100.0, show_default=True, help="Highest load in requests/s.")
@click.option("--trace", type=click.Path(exists=True, dir_okay=False), help="CSV of time_s,requests_per_s for `trace`.")
@click.option("--model", default="chat", show_default=True, help="Model in the requests.")
@click.option("--slo-ms", default=1000.0, show_default=True, help="An answer later than this is late.")
@click.option("--timeout", default=5.0, show_default=True, help="Seconds after which a client gives up.")
@click.option("--requests/--no-requests", default=False, show_default=True, help="Write a row for every request.")
@click.option(
    "--started",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the Unix time of the load's first second to this file when it begins.",
)
def run(host: str, out: Path, requests: bool, **options: Any) -> None:
    """Run Locust headless and write OUT/load.csv (a row a second) and OUT/load.json."""
    from rlscaler_loadgen.errors import LoadgenError, TraceError
    from rlscaler_loadgen.runner import LoadRun, summary_lines

    try:
        result = LoadRun(host, out, requests, options).run()
    except TraceError as error:
        raise click.UsageError(str(error)) from error
    except LoadgenError as error:
        raise click.ClickException(str(error)) from error
    for line in summary_lines(result):
        click.echo(line)
    if result["interrupted"]:
        sys.exit(INTERRUPTED)


@load.command()
@click.option("--host", required=True, help="Base URL of the service, http://HOST:PORT.")
@click.option("--workers", envvar="RLSCALER_WORKERS", default=2, show_default=True, help="Workers to wait for.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default="/results", show_default=True)
@click.option("--web-host", default="0.0.0.0", show_default=True, help="Address of Locust's web interface.")
@click.option("--web-port", default=8089, show_default=True, help="Port of Locust's web interface.")
@click.option("--port", default=5557, show_default=True, help="Port that workers connect to.")
@click.option("--wait", default=600.0, show_default=True, help="Seconds to wait for the service to answer.")
def master(host: str, workers: int, out: Path, web_host: str, web_port: int, port: int, wait: float) -> None:
    """Lead one run of several workers, then serve its results below /results/ of the web interface.

    The run is set up by RLSCALER_PATTERN, RLSCALER_DURATION, RLSCALER_SEED and so on in the environment of master and
    workers (`rlscaler_loadgen/settings.py`).
    """
    from rlscaler_loadgen.errors import LoadgenError
    from rlscaler_loadgen.runner import lead

    try:
        lead(host, workers, out, (web_host, web_port), port, wait)
    except LoadgenError as error:
        raise click.ClickException(str(error)) from error


@load.command()
@click.option("--master", required=True, help="Host of the master.")
@click.option("--port", default=5557, show_default=True, help="Its port.")
@click.option("--workers", envvar="RLSCALER_WORKERS", default=2, show_default=True, help="Workers, as for the master.")
def worker(master: str, port: int, workers: int) -> None:
    """Send a part of the requests of the run that a master leads."""
    from rlscaler_loadgen.runner import follow

    follow(master, port, workers)
