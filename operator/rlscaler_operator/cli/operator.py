"""`rlscaler operator`: run the operator, check an installation, and release all policies before it is uninstalled."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

import click

from rlscaler_core.options import output_option
from rlscaler_operator.cli.connection import connected, settings_errors
from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.settings import Settings

if TYPE_CHECKING:
    from rlscaler_operator.cluster.kube import Kube

F = TypeVar("F", bound=Callable[..., Any])

FLAGS = {
    "namespaces": "--namespace",
    "allowed_prometheus_urls": "--allow-prometheus-url",
    "allowed_kafka_servers": "--allow-kafka-server",
    "prometheus_headers": "--prometheus-header",
    "scrape_interval_seconds": "--scrape-interval",
}
"""Flags that differ from the name of their field of `Settings`."""

MUST_EXIST = ("external_scaler_tls_dir",)
"""Paths that must exist when the command begins."""

RUN = (
    *("kubeconfig", "namespaces", "prometheus_url", "allowed_prometheus_urls", "prometheus_headers"),
    "allowed_kafka_servers",
    *("scrape_interval_seconds", "metrics_port", "metrics_host", "external_scaler_port", "external_scaler_host"),
    *("external_scaler_tls_dir", "external_scaler_anonymous", "audit_log", "lease_namespace", "lease_name"),
    *("lease_seconds", "shards", "budgets", "target_kinds", "pod_deletion_cost", "resize", "resize_new_pods"),
    *("model_dir", "policy_dir", "reload_seconds", "verbose"),
)
"""Settings that are options of `run`; the others come from the environment only."""

INSTALLATION = ("kubeconfig", "namespaces", "lease_namespace", "lease_name", "shards")
"""Settings that tell `verify` and `release` which installation is meant."""

TIMEOUT_SECONDS = 5.0
"""Longest wait of `verify` and `release` for one answer of the API server: as long as the operator itself waits."""


def settings_options(names: tuple[str, ...]) -> Callable[[F], F]:
    """Add an option for each of these fields of `Settings`, in this order."""

    def decorate(command: F) -> F:
        for name in reversed(names):  # the decorator that is applied last comes first in --help
            flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
            command = click.option(flag, name, help=_help(name), **_option_type(name))(command)
        return command

    return decorate


def _help(name: str) -> str:
    """Return the first sentence of a field's docstring."""
    text = " ".join((Settings.model_fields[name].description or "").replace("`", "").split())
    sentence = re.split(r"(?<=\.)\s", text)[0]
    return f"{sentence.removesuffix('.')} (repeatable)." if _is_tuple(name) else sentence


def _is_tuple(name: str) -> bool:
    return get_origin(Settings.model_fields[name].annotation) is tuple


def _option_type(name: str) -> dict[str, Any]:
    """Return the arguments of `click.option` that follow from a field's type."""
    if _is_tuple(name):
        return {"multiple": True}
    annotation = Settings.model_fields[name].annotation
    kind = next((part for part in get_args(annotation) if part is not type(None)), annotation)
    if kind is bool:
        return {"is_flag": True, "default": None}
    if kind is Path:
        folder = name.endswith("_dir")
        return {"type": click.Path(name in MUST_EXIST, file_okay=not folder, dir_okay=folder, path_type=Path)}
    return {"type": kind}


def _settings(options: Mapping[str, Any]) -> Settings:
    """Return settings with the given options; the others come from the environment. Raises ValidationError."""
    return Settings(**{name: value for name, value in options.items() if value not in (None, ())})


@click.group()
def operator() -> None:
    """Run the operator."""


@operator.command()
@settings_options(RUN)
def run(**options: Any) -> None:
    """Scale the Deployments of all RLScalingPolicies until SIGTERM.

    Every option can also be set as RLSCALER_<NAME> in the environment; `rlscaler_operator/settings.py` has them all.
    """
    from rlscaler_operator.run.main import run as run_operator

    with settings_errors():
        settings = _settings(options)
    _log(settings.verbose)
    try:
        asyncio.run(run_operator(settings))
    except OperatorError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        sys.exit(130)


def _log(verbose: bool) -> None:
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s %(message)s",
        stream=sys.stderr,
    )
    for name in ("asyncio", "urllib3", "kopf.objects", "kopf.activities"):
        logging.getLogger(name).setLevel(logging.WARNING)


@operator.command()
@settings_options((*INSTALLATION, "prometheus_url"))
@click.option("--url", help="Address of the operator's metrics port; its readiness is asked for there.")
@click.option(
    "--patience-seconds",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="How long to repeat the checks of API, Lease, Prometheus and operator, which may still be starting.",
)
@output_option
def verify(url: str | None, patience_seconds: float, output: str, **options: Any) -> None:
    """Check an installation: API, permissions, Lease, Prometheus, readiness. Exit code 1 where a check fails.

    Run it under the operator's account: it then finds permissions that are missing, and those that are too wide.
    """
    from rlscaler_operator.cli.checks import CheckList
    from rlscaler_operator.cli.verify import verify as checks_of

    checks = CheckList(output)

    async def work(kube: Kube, settings: Settings) -> None:
        async for check in checks_of(kube, settings, url, patience_seconds):
            checks.add(check)

    connected(lambda: _settings(options), work, timeout_seconds=TIMEOUT_SECONDS)
    checks.end()


@operator.command()
@settings_options(INSTALLATION)
def release(**options: Any) -> None:
    """Let go of all policies before the operator is uninstalled.

    Takes the operators' Lease, so that none acts for 90 s, and removes the finalizers of policies with restoreOnDelete:
    no operator would remove them later. Replicas and weights stay as they are.
    """
    from rlscaler_operator.run.release import release as release_policies

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    released = connected(lambda: _settings(options), release_policies, timeout_seconds=TIMEOUT_SECONDS)
    click.echo(f"released {', '.join(released)}" if released else "no policy has a finalizer: nothing to release")
