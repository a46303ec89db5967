"""`rlscaler ui`: serve the page until Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlscaler_operator.cli.connection import PROMETHEUS_URL, Target, cluster_options, model_option, within

if TYPE_CHECKING:
    from rlscaler_operator.cli.objects import Policies

PORT = 8910
"""The same port everywhere, so that an address sent to a colleague opens on the colleague's own page."""


@click.command()
@cluster_options
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port; 0: any free one.")
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@PROMETHEUS_URL
@click.option(
    "--decision-log",
    "decision_logs",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Audit log of the operator, or the folder that holds it (repeatable).",
)
@model_option()
def ui(
    target: Target,
    port: int,
    opens: bool,
    prometheus_url: str | None,
    decision_logs: tuple[Path, ...],
    models: tuple[Path, ...],
) -> None:
    """Show all policies on a local page, live and read-only, with the rights of the kubeconfig.

    The page is bound to 127.0.0.1 and asks for the token of the printed address. Nothing is installed in the cluster,
    and nothing is changed in it: buttons copy a kubectl command. Without -n all namespaces are shown, or that of the
    context where no more may be listed.

    \b
    rlscaler ui --open
    rlscaler ui -n workloads --port 0 --prometheus-url http://127.0.0.1:9090 --decision-log audit.jsonl
    """
    from rlscaler_live.ui.server import Options, serve

    options = Options(
        port=port,
        opens=opens,
        namespace=target.namespace,
        context=target.context,
        prometheus_url=prometheus_url,
        decision_logs=decision_logs,
        models=models,
    )

    async def run(policies: Policies) -> None:
        await serve(policies.kube, policies.namespace, options)

    within(target, run, read_only=True)
