"""`rlscaler status`: all policies in a table, or one in detail."""

from __future__ import annotations

import json
from pathlib import Path

import click

from rlscaler_operator.cli.cluster import Target, cluster_options, complete_names, within


@click.command()
@click.argument("name", required=False, shell_complete=complete_names)
@cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Of all namespaces.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="json: the whole objects.")
def status(
    name: str | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    output: str,
) -> None:
    """Show what the policies see and do; with NAME one of them in detail.

    \b
    rlscaler status -A
    rlscaler status chat -n workloads
    """
    from rich.console import Console

    from rlscaler_operator.cli.pages import detail, table

    target = Target(kubeconfig, context, namespace)
    if name is not None and all_namespaces:
        raise click.UsageError("NAME and --all-namespaces exclude each other: a name is of one namespace")
    bodies = within(target, lambda policies: policies.all(all_namespaces)) if name is None else []
    one = None if name is None else within(target, lambda policies: policies.get(name))
    if output == "json":
        click.echo(json.dumps(one if name is not None else {"items": bodies}, indent=2))
    elif one is not None:
        Console(highlight=False, soft_wrap=True).print(detail(one))
    elif bodies:
        Console(highlight=False, soft_wrap=True).print(table(bodies, all_namespaces))
    else:
        click.echo("no RLScalingPolicy is here: another namespace is named with -n, all of them with -A", err=True)
