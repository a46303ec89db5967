"""`rlscaler service consumers` and `load produce`: consumers and messages of a Kafka topic."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import click

PATTERN_NAMES = ("ramp", "spike", "periodic", "random", "trace")
"""Of loads of every kind, as `rlscaler_loadgen.patterns` has them."""
PROTOCOL_NAMES = ("range", "cooperative-sticky", "consumer")

protocol_option = click.option(
    "--protocol",
    type=click.Choice(PROTOCOL_NAMES),
    default="cooperative-sticky",
    show_default=True,
    help="Protocol by which the group shares its partitions; `consumer` is KIP-848.",
)
"""Decorator of every command that has consumers: `protocol` is one of `PROTOCOL_NAMES`."""


@click.command()
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Cluster to watch; in-cluster by default.")
@click.option("--namespace", default="default", show_default=True)
@click.option("--deployment", required=True, help="Deployment whose ready pods are the members of the group.")
@click.option("--bootstrap-servers", required=True, help="Brokers to begin with, host:port, separated by commas.")
@click.option("--topic", required=True, help="Topic that is consumed.")
@click.option("--group", required=True, help="The consumers' group.id.")
@protocol_option
@click.option("--message-ms", default=10.0, show_default=True, help="Mean time of work on a message.")
@click.option("--variation", default=0.5, show_default=True, help="Coefficient of variation of that time.")
@click.option("--batch", type=click.IntRange(1), default=10, show_default=True, help="Messages taken at once.")
@click.option("--commit-seconds", default=1.0, show_default=True, help="Time between two commits.")
@click.option("--seed", default=0, show_default=True, help="Seed of the times of work.")
@click.option(
    "--records",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Write a row for every message and every change of partitions into this folder.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of /metrics.")
@click.option("--metrics-port", default=9090, show_default=True, help="Port of /metrics; 0 takes a free one.")
def consumers(
    kubeconfig: str | None,
    namespace: str,
    deployment: str,
    bootstrap_servers: str,
    message_ms: float,
    records: Path | None,
    host: str,
    metrics_port: int,
    **job: Any,
) -> None:
    """Consume a Kafka topic with one member for each ready pod of a Deployment (on nodes that are simulated)."""
    from prometheus_client import CollectorRegistry

    from rlscaler_loadgen.errors import LoadgenError
    from rlscaler_loadgen.streams.group import Consumers
    from rlscaler_loadgen.streams.journal import ConsumerJournal
    from rlscaler_loadgen.streams.member import Job

    work = Job(servers=bootstrap_servers, message_seconds=message_ms / 1000, **job)
    registry = CollectorRegistry()
    journal = ConsumerJournal(registry, namespace, work.group, records)

    def ready(metrics: str) -> None:
        click.echo(f"consumers {namespace}/{deployment}: group {work.group} of {work.topic}, metrics {metrics}")
        sys.stdout.flush()

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    running = Consumers(kubeconfig, namespace, deployment, work, host, metrics_port)
    try:
        asyncio.run(running.run(journal, registry, ready))
    except LoadgenError as error:
        raise click.ClickException(str(error)) from error
    finally:
        journal.close()


@click.command()
@click.option("--bootstrap-servers", required=True, help="Brokers to begin with, host:port, separated by commas.")
@click.option("--topic", required=True, help="Topic that is written to.")
@click.option("--pattern", type=click.Choice(PATTERN_NAMES), default="spike", show_default=True)
@click.option("--duration", default=300, show_default=True, help="Seconds.")
@click.option("--seed", default=1, show_default=True, help="Seed of pattern, times and keys.")
@click.option("--low", default=10.0, show_default=True, help="Lowest load in messages/s.")
@click.option("--peak", default=100.0, show_default=True, help="Highest load in messages/s.")
@click.option(
    "--trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CSV of time_s,requests_per_s for `trace`.",
)
@click.option(
    "--skew",
    type=click.FloatRange(0, 5),
    default=0.0,
    show_default=True,
    help="Inequality of the 1,000 keys: key k is drawn in proportion to 1/k^skew.",
)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default="results/produced", show_default=True)
@click.option(
    "--started",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the Unix time of the load's first second to this file when it begins.",
)
def produce(bootstrap_servers: str, topic: str, skew: float, out: Path, **load: Any) -> None:
    """Write messages to a Kafka topic at the times of a pattern, and OUT/produced.csv and OUT/produced.json."""
    from rlscaler_loadgen.errors import LoadgenError
    from rlscaler_loadgen.settings import LoadSettings
    from rlscaler_loadgen.streams.producer import Production

    try:
        settings = LoadSettings(**load)
        result = Production(bootstrap_servers, topic, settings, out, skew).run()
    except LoadgenError as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    click.echo(
        f"{result['produced']} of {result['scheduled']} messages written, {sum(result['failed'].values())} failed"
    )
    if result["generator_late"]:
        click.echo(f"the producer was late itself: 1 % by {result['dispatch_lag_p99_ms']:.0f} ms or more", err=True)
