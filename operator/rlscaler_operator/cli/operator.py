"""`rlscaler operator`: running the operator from the command line."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import click

from rlscaler_operator.cli.installation import release, verify
from rlscaler_operator.exceptions import OperatorError


@click.group()
def operator() -> None:
    """Run the operator."""


operator.add_command(verify)
operator.add_command(release)


@operator.command()
@click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Kubeconfig of the cluster.")
@click.option("--namespace", "namespaces", multiple=True, help="Serve only this namespace (repeatable); default: all.")
@click.option("--prometheus-url", help="Prometheus of policies that name none.")
@click.option("--allow-prometheus-url", "allowed_prometheus_urls", multiple=True, help="URL that policies may name.")
@click.option("--scrape-interval", "scrape_interval_seconds", type=float, help="Seconds between two scrapes.")
@click.option("--metrics-port", type=int, help="Serve /metrics, /healthz and /readyz on this port.")
@click.option("--metrics-host", help="Address of that port.")
@click.option("--external-scaler-port", type=int, help="Serve KEDA's external scaler protocol on this port.")
@click.option("--external-scaler-host", help="Address of the external scaler.")
@click.option(
    "--external-scaler-tls-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of its tls.crt, tls.key and, where clients have to show a certificate, ca.crt.",
)
@click.option("--audit-log", type=click.Path(dir_okay=False, path_type=Path), help="Write a JSON line per decision.")
@click.option("--lease-namespace", help="Namespace of the Lease.")
@click.option("--lease-name", help="Name of the Lease.")
@click.option("--lease-seconds", type=float, help="How long a silent holder keeps the Lease.")
@click.option("--shards", type=int, help="Parts that the policies are split into, one operator each.")
@click.option("--pod-deletion-cost", is_flag=True, default=None, help="Mark idle pods before a pool shrinks.")
@click.option("--model-dir", type=click.Path(file_okay=False, path_type=Path), help="Folder of ppo.onnx and ppo.json.")
@click.option("--policy-dir", type=click.Path(file_okay=False, path_type=Path), help="Folder of spec.policy.path.")
@click.option("--reload-seconds", type=float, help="How often named ConfigMaps and Secrets are looked at again.")
@click.option("--verbose", is_flag=True, default=None, help="Log every tick.")
def run(**options: Any) -> None:
    """Scale the Deployments of all RLScalingPolicies until SIGTERM.

    Every option can also be set as RLSCALER_<NAME> in the environment; `rlscaler_operator/settings.py` has them all.
    """
    from pydantic import ValidationError

    from rlscaler_operator.run.main import run as run_operator
    from rlscaler_operator.settings import Settings

    try:
        settings = Settings(**{name: value for name, value in options.items() if value not in (None, ())})
    except ValidationError as error:
        raise click.UsageError(_explain(error)) from error
    _log(settings.verbose)
    try:
        asyncio.run(run_operator(settings))
    except OperatorError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        sys.exit(130)


def _explain(error: Any) -> str:
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())


def _log(verbose: bool) -> None:
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s %(message)s",
        stream=sys.stderr,
    )
    for name in ("asyncio", "urllib3", "kopf.objects", "kopf.activities"):
        logging.getLogger(name).setLevel(logging.WARNING)
