"""`rlscaler init`: read the Deployment or its autoscaler, and write a policy that can replace the autoscaler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlscaler_core.options import FILE
from rlscaler_operator.cli.connection import Target, cluster_options, within

if TYPE_CHECKING:
    from rlscaler_operator.cli.init.guess import Seen
    from rlscaler_operator.cli.objects import Policies
    from rlscaler_operator.cluster.kube import Json

KINDS = {
    "Deployment": ("apps/v1", "deployments"),
    "HorizontalPodAutoscaler": ("autoscaling/v2", "horizontalpodautoscalers"),
    "ScaledObject": ("keda.sh/v1alpha1", "scaledobjects"),
}


@click.command()
@click.option("--from-hpa", metavar="NAME", help="The HorizontalPodAutoscaler that scales the service now.")
@click.option("--from-scaledobject", metavar="NAME", help="KEDA's ScaledObject that scales the service now.")
@click.option("--deployment", metavar="NAME", help="The Deployment, where nothing scales it.")
@click.option("--cpu", metavar="NAME", help="The Deployment that serves the same requests on CPUs.")
@cluster_options
@click.option("--out", type=FILE, help="File to write; default: the terminal.")
@click.option("--force", is_flag=True, help="Replace the file.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="json: for programs, with the guesses beside the policy.",
)
def init(
    from_hpa: str | None,
    from_scaledobject: str | None,
    deployment: str | None,
    cpu: str | None,
    target: Target,
    out: Path | None,
    force: bool,
    output: str,
) -> None:
    """Write a policy in mode Shadow for a service on the cluster, with a comment for every guess.

    The cluster is only read. Look over all lines marked GUESS, then ask `rlscaler preflight` and apply it.

    \b
    rlscaler init --from-hpa chat -n workloads --out chat.yaml
    rlscaler init --deployment chat-gpu --cpu chat-cpu -n workloads
    """
    sources = {"HorizontalPodAutoscaler": from_hpa, "ScaledObject": from_scaledobject, "Deployment": deployment}
    given = [(kind, name) for kind, name in sources.items() if name]
    if len(given) != 1:
        raise click.UsageError(
            f"{len(given)} sources are named: name one of --from-hpa, --from-scaledobject and --deployment"
        )
    if cpu is not None and cpu == deployment:
        raise click.UsageError(f"--cpu {cpu}: is the Deployment of --deployment too: name another, or leave --cpu out")
    if out is not None and out.exists() and not force:
        raise click.UsageError(f"--out {out}: is there already: name another file, or replace it with --force")
    (source,) = given
    seen = within(target, lambda policies: _read(policies, *source, cpu), read_only=True)
    text = _document(seen, cpu is not None, output)
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"--out {out}: {error.strerror}: name a file that can be written") from error
    click.echo(f"{out}: look over what is marked GUESS, then run `rlscaler preflight {out}`", err=True)


def _document(seen: Seen, two_pools: bool, output: str) -> str:
    from rlscaler_operator.cli.init.guess import drafted

    draft = drafted(seen, two_pools)
    try:
        return draft.json() if output == "json" else draft.yaml()
    except ValueError as error:
        raise click.ClickException(f"what runs makes no valid policy: {error}") from error


async def _read(policies: Policies, kind: str, name: str, cpu: str | None) -> Seen:
    """Read the source, its Deployment, pods, Services and routes. Raises OperatorError, ClickException."""
    from rlscaler_operator.cli.init.guess import Seen
    from rlscaler_operator.cluster.kube import listed

    async def get(kind: str, name: str) -> Json:
        return {"kind": kind, **await policies.find(kind, *KINDS[kind], name)}

    source = await get(kind, name)
    scaler = None if kind == "Deployment" else source
    main = name
    if scaler is not None:
        reference = scaler["spec"].get("scaleTargetRef") or {}
        scaled = reference.get("kind") or "Deployment"
        main = reference.get("name", "")
        if scaled != "Deployment":
            raise click.ClickException(
                f"{kind} {policies.namespace}/{name}: spec.scaleTargetRef.kind is {scaled}, this writes policies for "
                "Deployments only: name the object in spec.targets by kind, apiVersion and name"
            )
        if cpu == main:
            raise click.UsageError(f"--cpu {cpu}: is what {kind} {name} scales: name another, or leave --cpu out")
    deployments = {main: source if scaler is None else await get("Deployment", main)}
    if cpu is not None:
        deployments[cpu] = await get("Deployment", cpu)
    spaces, kube = [policies.namespace], policies.kube
    return Seen(
        policies.namespace,
        deployments,
        scaler,
        [body async for body in listed(kube, spaces, "v1", "pods")],
        [body async for body in listed(kube, spaces, "v1", "services")],
        [body async for body in listed(kube, spaces, "gateway.networking.k8s.io/v1", "httproutes", optional=True)],
    )
