"""`rlscaler operator`: run the operator, check an installation, and release all policies before it is uninstalled."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

import click

from rlscaler_core.options import output_option
from rlscaler_operator.cli.cluster import settings_errors
from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.settings import Settings

if TYPE_CHECKING:
    from rlscaler_operator.cluster.kube import Kube

F = TypeVar("F", bound=Callable[..., Any])

FLAGS = {
    "namespaces": "--namespace",
    "allowed_prometheus_urls": "--allow-prometheus-url",
    "allowed_kafka_servers": "--allow-kafka-server",
    "scrape_interval_seconds": "--scrape-interval",
}
"""Flags that are not called as their field of `Settings` is."""

MUST_EXIST = ("external_scaler_tls_dir",)
"""Paths that must exist when the command begins."""

RUN = {
    "kubeconfig": "Kubeconfig of the cluster.",
    "namespaces": "Serve only this namespace (repeatable); default: all.",
    "prometheus_url": "Prometheus of policies that name none.",
    "allowed_prometheus_urls": "URL that policies may name.",
    "allowed_kafka_servers": "Broker, host:port, that policies may name (repeatable).",
    "scrape_interval_seconds": "Seconds between two scrapes.",
    "metrics_port": "Serve /metrics, /healthz and /readyz on this port.",
    "metrics_host": "Address of that port.",
    "external_scaler_port": "Serve KEDA's external scaler protocol on this port.",
    "external_scaler_host": "Address of the external scaler.",
    "external_scaler_tls_dir": "Folder of its tls.crt and tls.key, and of the ca.crt of its clients' certificates.",
    "external_scaler_anonymous": "Answer clients of other machines that show no certificate.",
    "audit_log": "Write a JSON line per decision.",
    "lease_namespace": "Namespace of the Lease.",
    "lease_name": "Name of the Lease.",
    "lease_seconds": "How long a silent holder keeps the Lease.",
    "shards": "Parts that the policies are split into, one operator each.",
    "budgets": "Let RLScalingBudgets bound the policies that they select.",
    "target_kinds": "Kind that may be scaled besides Deployments: apiVersion/plural/Kind (repeatable).",
    "pod_deletion_cost": "Before a pool shrinks, mark the pods that are idle and empty nodes.",
    "resize": "Resize running pods for policies that ask for it.",
    "resize_new_pods": "Have new pods begin with the size that running ones got.",
    "model_dir": "Folder of ppo.onnx, ppo.json, streams.onnx and streams.json.",
    "policy_dir": "Folder of spec.policy.path.",
    "reload_seconds": "How often named ConfigMaps and Secrets are looked at again.",
    "verbose": "Log every tick.",
}
"""Settings that are options of `run`, with their help."""

INSTALLATION = {
    "kubeconfig": "Kubeconfig of the cluster.",
    "namespaces": "A namespace that is served (repeatable).",
    "lease_namespace": "Namespace of the operators' Lease.",
    "lease_name": "Name of the operators' Lease.",
    "shards": "Shards of the operators.",
}
"""Settings that say which installation `verify` and `release` are about, with their help."""


def settings_options(helps: dict[str, str]) -> Callable[[F], F]:
    """Give a command an option for each of these fields of `Settings`, in this order; flag and type are the field's."""

    def decorate(command: F) -> F:
        for name, text in reversed(helps.items()):
            flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
            command = click.option(flag, name, help=text, **_option_type(name))(command)
        return command

    return decorate


def _option_type(name: str) -> dict[str, Any]:
    """Return the arguments of `click.option` that follow from a field's type."""
    annotation = Settings.model_fields[name].annotation
    if get_origin(annotation) is tuple:
        return {"multiple": True}
    kind = next((part for part in get_args(annotation) if part is not type(None)), annotation)
    if kind is bool:
        return {"is_flag": True, "default": None}
    if kind is Path:
        folder = name.endswith("_dir")
        return {"type": click.Path(name in MUST_EXIST, file_okay=not folder, dir_okay=folder, path_type=Path)}
    return {"type": kind}


def _settings(options: Mapping[str, Any]) -> Settings:
    """Make settings of the options that were given; the others come from the environment. Raises UsageError."""
    with settings_errors():
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
@settings_options(INSTALLATION | {"prometheus_url": RUN["prometheus_url"]})
@click.option("--url", help="Address of the operator's metrics port; its readiness is asked for there.")
@click.option(
    "--patience-seconds",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="How long to ask again for what comes up by itself: API, Lease, Prometheus, operator.",
)
@output_option
def verify(url: str | None, patience_seconds: float, output: str, **options: Any) -> None:
    """Check an installation: API, permissions, Lease, Prometheus, readiness. Exit code 1 where something is wrong.

    Run it under the operator's account: what that may not do, or may do beyond its needs, is found so.
    """
    from rlscaler_operator.cli.findings import Finding, as_json, show
    from rlscaler_operator.cli.verify import verify as findings

    async def work(kube: Kube, settings: Settings) -> list[Finding]:
        found = []
        async for finding in findings(kube, settings, url, patience_seconds):
            found.append(finding)
            if output != "json":
                show(finding)
        return found

    found = _connected(work, options)
    if output == "json":
        click.echo(as_json(found))
    sys.exit(1 if any(finding.failed for finding in found) else 0)


@operator.command()
@settings_options(INSTALLATION)
def release(**options: Any) -> None:
    """Let go of all policies before the operator is uninstalled.

    Takes the operators' Lease, so that none acts for 90 s, and removes the finalizers of policies with restoreOnDelete:
    no operator would remove them later. Replicas and weights stay as they are.
    """
    from rlscaler_operator.run.release import release as release_policies

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    released = _connected(release_policies, options)
    click.echo(f"released {', '.join(released)}" if released else "no policy has a finalizer: nothing to release")


def _connected(work: Callable[[Kube, Settings], Awaitable[Any]], options: Mapping[str, Any]) -> Any:
    """Return the result of `work` with a connection to the cluster. Raises ClickException."""
    from rlscaler_operator.cluster.kube import Kube, load_configuration

    async def connected() -> Any:
        settings = _settings(options)
        kube = Kube(await load_configuration(settings))
        try:
            return await work(kube, settings)
        finally:
            await kube.close()

    try:
        return asyncio.run(connected())
    except OperatorError as error:
        raise click.ClickException(str(error)) from error
