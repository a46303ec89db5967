"""`rlscaler operator verify` and `rlscaler operator release`: the chart's test and its last act."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlscaler_operator.exceptions import OperatorError

if TYPE_CHECKING:
    from rlscaler_operator.cluster.kube import Kube
    from rlscaler_operator.settings import Settings

SCOPE = (
    click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Kubeconfig of the cluster."),
    click.option("--namespace", "namespaces", multiple=True, help="A namespace that is served (repeatable)."),
    click.option("--lease-namespace", help="Namespace of the operators' Lease."),
    click.option("--lease-name", help="Name of the operators' Lease."),
    click.option("--shards", type=int, help="Shards of the operators."),
)
"""Which installation; each also as RLSCALER_<NAME> in the environment, as for the operator."""


def _scoped(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(SCOPE):
        command = option(command)
    return command


@click.command()
@_scoped
@click.option("--prometheus-url", help="Prometheus of policies that name none.")
@click.option("--url", help="Address of the operator's metrics port; its readiness is asked for there.")
def verify(url: str | None, **options: Any) -> None:
    """Check an installation: API, permissions, Lease, Prometheus, readiness. Exit code 1 where something is wrong.

    Run it under the operator's account: what that may not do, or may do beyond its needs, is found so.
    """
    from rlscaler_operator.cli.verify import verify as findings

    async def work(kube: Kube, settings: Settings) -> bool:
        good = True
        async for finding in findings(kube, settings, url):
            good = good and not finding.trouble
            click.echo(f"{'FAIL' if finding.trouble else 'ok  '} {finding.what}")
            if finding.trouble:
                click.echo(f"     {finding.trouble}")
        return good

    sys.exit(0 if _connected(work, options) else 1)


@click.command()
@_scoped
def release(**options: Any) -> None:
    """Let go of all policies before the operator is uninstalled.

    Takes the operators' Lease, so that none acts for 90 s, and removes the finalizers of policies with restoreOnDelete:
    nobody would remove them later. Replicas and weights stay as they are.
    """
    from rlscaler_operator.run.release import release as let_go

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    released = _connected(let_go, options)
    click.echo(f"released {', '.join(released)}" if released else "no policy has a finalizer: nothing to release")


def _connected(work: Callable[[Kube, Settings], Awaitable[Any]], options: dict[str, Any]) -> Any:
    """The result of `work` with a connection to the cluster."""
    from pydantic import ValidationError

    from rlscaler_operator.cluster.kube import Kube, load_configuration
    from rlscaler_operator.settings import Settings

    async def connected() -> Any:
        settings = Settings(**{name: value for name, value in options.items() if value not in (None, ())})
        kube = Kube(await load_configuration(settings))
        try:
            return await work(kube, settings)
        finally:
            await kube.close()

    try:
        return asyncio.run(connected())
    except (OperatorError, ValidationError) as error:
        raise click.ClickException(str(error)) from error
