"""`rlscaler status`, `pause`, `resume` and `promote`: what people ask about policies and change."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlscaler_core.options import output_option
from rlscaler_operator.cli.cluster import (
    Policies,
    Target,
    cluster_options,
    complete_names,
    policy_argument,
    within,
)

if TYPE_CHECKING:
    from rlscaler_operator.cluster.kube import Json

MOST_REPLICAS = 10_000
"""The largest number of replicas that the API allows."""


@click.command()
@click.argument("name", required=False, shell_complete=complete_names)
@cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Of all namespaces.")
@output_option
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


@click.command()
@policy_argument
@cluster_options
@click.option("--scale-down", is_flag=True, help="Forbid scaling down only; it goes on growing.")
@click.option("--gpu", type=click.IntRange(0, MOST_REPLICAS), help="Set the GPU replicas to this number and keep them.")
@click.option("--cpu", type=click.IntRange(0, MOST_REPLICAS), help="Set the CPU replicas to this number and keep them.")
@output_option
def pause(
    name: str,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    scale_down: bool,
    gpu: int | None,
    cpu: int | None,
    output: str,
) -> None:
    """Hold the replicas of policy NAME as they are, or at a number. It goes on deciding and recording.

    The traffic split goes on as well. `rlscaler resume NAME` ends it.
    """
    from rlscaler_operator.sensing.measure import PAUSED, PAUSED_REPLICAS, PAUSED_SCALE_DOWN, PAUSES

    numbers = {pool: number for pool, number in (("gpu", gpu), ("cpu", cpu)) if number is not None}
    if scale_down and numbers:
        raise click.UsageError("--scale-down and a number of replicas exclude each other: the number holds both ways")

    async def work(policies: Policies) -> list[str]:
        body = await policies.get(name)
        targets = (body.get("spec") or {}).get("targets") or {}
        if absent := [pool for pool in numbers if pool not in targets]:
            raise click.ClickException(f"{name} has no spec.targets.{absent[0]}: leave --{absent[0]} out")
        wanted = {f"{PAUSED_REPLICAS}{pool}": str(number) for pool, number in numbers.items()}
        wanted |= {} if wanted else {PAUSED_SCALE_DOWN if scale_down else PAUSED: "true"}
        await policies.annotate(name, dict.fromkeys(PAUSES) | wanted)
        held = "is not scaled down" if scale_down else "keeps its replicas"
        if numbers:
            held = f"is held at {', '.join(f'{pool} {number}' for pool, number in numbers.items())}"
        return [f"{policies.namespace}/{name} {held} until `rlscaler resume {name} -n {policies.namespace}`"]

    _change(Target(kubeconfig, context, namespace), name, work, output)


@click.command()
@policy_argument
@cluster_options
@output_option
def resume(name: str, kubeconfig: Path | None, context: str | None, namespace: str | None, output: str) -> None:
    """Let policy NAME scale again: takes every pause annotation away."""
    from rlscaler_operator.sensing.measure import PAUSES

    async def work(policies: Policies) -> list[str]:
        body = await policies.get(name)
        found = [key for key in PAUSES if key in (body["metadata"].get("annotations") or {})]
        if not found:
            return [f"{policies.namespace}/{name} is not paused"]
        await policies.annotate(name, dict.fromkeys(found))
        return [f"{policies.namespace}/{name} scales again ({', '.join(found)} removed)"]

    _change(Target(kubeconfig, context, namespace), name, work, output)


@click.command()
@policy_argument
@cluster_options
@click.option(
    "--force", is_flag=True, help="Although it is not Ready, or another autoscaler or person scales its targets."
)
@output_option
def promote(
    name: str, kubeconfig: Path | None, context: str | None, namespace: str | None, force: bool, output: str
) -> None:
    """Switch policy NAME from Shadow to Auto, and say what the evidence says.

    Refused while the policy is not Ready, and while another autoscaler or person scales its targets. With
    `promotion.require: Evidence` it acts in Auto once it was measurably better than what ran before, not earlier.
    """
    from rlscaler_operator.cli.pages import evidence, mode_of

    async def work(policies: Policies) -> list[str]:
        body = await policies.get(name)
        called, promotion = f"{policies.namespace}/{name}", (body.get("status") or {}).get("promotion") or {}
        said = [f"evidence: {evidence(promotion)}"] if promotion else []
        if mode_of(body) == "Auto":
            return [f"{called} is in mode Auto already", *said]
        if (why := _obstacle(body)) and not force:
            raise click.ClickException(f"{called} would not act: {why} (--force switches it all the same)")
        await policies.switch(body, "Auto")
        return [f"{called} is in mode Auto: {_what_follows(body, promotion)}", *said]

    _change(Target(kubeconfig, context, namespace), name, work, output)


def _change(target: Target, name: str, work: Callable[[Policies], Coroutine[Any, Any, list[str]]], output: str) -> None:
    """Change a policy and print the sentences of `work`; as JSON the policy as it is then, and they go to stderr."""

    async def changed(policies: Policies) -> tuple[list[str], Json]:
        return await work(policies), await policies.get(name)

    said, body = within(target, changed)
    for line in said:
        click.echo(line, err=output == "json")
    if output == "json":
        click.echo(json.dumps(body, indent=2))


def _obstacle(body: Json) -> str:
    """Say why the policy would not act in mode Auto now; empty = it would."""
    from rlscaler_operator.cli.pages import condition

    conflicted, ready = condition(body, "Conflicted"), condition(body, "Ready")
    if conflicted.get("status") == "True" or conflicted.get("reason") == "NotActing":
        return conflicted.get("message", "Conflicted")
    if not ready:
        return "no operator has looked at it yet"
    return "" if ready["status"] == "True" else f"{ready.get('reason')}: {ready.get('message')}"


def _what_follows(body: Json, promotion: Json) -> str:
    required = (((body.get("spec") or {}).get("promotion")) or {}).get("require") == "Evidence"
    if required and promotion.get("state") not in ("Ready", "Promoted"):
        return "it acts once the evidence is there"
    return "replicas and traffic follow its decisions from the next interval on"
