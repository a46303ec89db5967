"""`rlscaler status`, `pause`, `resume` and `promote`: show policies and change them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from rlscaler_core.options import output_option
from rlscaler_operator.cli.connection import (
    Target,
    cluster_options,
    complete_names,
    policy_argument,
    within,
)
from rlscaler_operator.cli.terminal import print_json, print_page

if TYPE_CHECKING:
    from rlscaler_operator.cli.objects import Policies
    from rlscaler_operator.cluster.kube import Json

MOST_REPLICAS = 10_000
"""The largest number of replicas that the API allows."""


@click.command()
@click.argument("name", required=False, shell_complete=complete_names)
@cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Of all namespaces.")
@output_option
def status(name: str | None, target: Target, all_namespaces: bool, output: str) -> None:
    """Show state, replicas, latency and cost of all policies, or of policy NAME in detail.

    \b
    rlscaler status -A
    rlscaler status chat -n workloads
    """
    from rlscaler_operator.cli.pages import detail, table

    if name is not None and all_namespaces:
        raise click.UsageError("NAME and --all-namespaces exclude each other: a name is of one namespace")
    body = None if name is None else within(target, lambda policies: policies.get(name))
    bodies = within(target, lambda policies: policies.all(all_namespaces)) if body is None else []
    if output == "json":
        print_json({"items": bodies} if body is None else body)
    elif body is not None:
        print_page(detail(body), wrap=False)
    elif bodies:
        print_page(table(bodies, all_namespaces), wrap=False)
    else:
        click.echo("no RLScalingPolicy is here: another namespace is named with -n, all of them with -A", err=True)


@click.command()
@policy_argument
@cluster_options
@click.option("--scale-down", is_flag=True, help="Forbid scaling down only; scaling up goes on.")
@click.option("--gpu", type=click.IntRange(0, MOST_REPLICAS), help="Set the GPU replicas to this number and keep them.")
@click.option("--cpu", type=click.IntRange(0, MOST_REPLICAS), help="Set the CPU replicas to this number and keep them.")
@output_option
def pause(name: str, target: Target, scale_down: bool, gpu: int | None, cpu: int | None, output: str) -> None:
    """Hold the replicas of policy NAME as they are, or at a number. Decisions and records go on.

    The traffic split goes on as well. `rlscaler resume NAME` ends the pause.
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
        # One pause replaces another: annotations that are not wanted are removed.
        await policies.annotate(name, dict.fromkeys(PAUSES) | wanted)
        held = "is not scaled down" if scale_down else "keeps its replicas"
        if numbers:
            held = f"is held at {', '.join(f'{pool} {number}' for pool, number in numbers.items())}"
        return [f"{policies.namespace}/{name} {held} until `rlscaler resume {name} -n {policies.namespace}`"]

    _change(target, name, work, output)


@click.command()
@policy_argument
@cluster_options
@output_option
def resume(name: str, target: Target, output: str) -> None:
    """Let policy NAME scale again: remove every pause annotation."""
    from rlscaler_operator.sensing.measure import PAUSES

    async def work(policies: Policies) -> list[str]:
        body = await policies.get(name)
        pauses = [key for key in PAUSES if key in (body["metadata"].get("annotations") or {})]
        if not pauses:
            return [f"{policies.namespace}/{name} is not paused"]
        await policies.annotate(name, dict.fromkeys(pauses))
        return [f"{policies.namespace}/{name} scales again ({', '.join(pauses)} removed)"]

    _change(target, name, work, output)


@click.command()
@policy_argument
@cluster_options
@click.option(
    "--force", is_flag=True, help="Although it is not Ready, or another autoscaler or person scales its targets."
)
@output_option
def promote(name: str, target: Target, force: bool, output: str) -> None:
    """Switch policy NAME from Shadow to Auto, and print its evidence.

    Refused while the policy is not Ready, and while another autoscaler or person scales its targets. With
    `promotion.require: Evidence` the policy acts once it was measurably better than the former autoscaler, not earlier.
    """
    from rlscaler_operator.cli.pages import evidence, mode_of

    async def work(policies: Policies) -> list[str]:
        body = await policies.get(name)
        title, promotion = f"{policies.namespace}/{name}", (body.get("status") or {}).get("promotion") or {}
        lines = [f"evidence: {evidence(promotion)}"] if promotion else []
        if mode_of(body) == "Auto":
            return [f"{title} is in mode Auto already", *lines]
        if (obstacle := _obstacle(body)) and not force:
            raise click.ClickException(f"{title} would not act: {obstacle} (--force switches it all the same)")
        await policies.switch(body, "Auto")
        return [f"{title} is in mode Auto: {_what_follows(body, promotion)}", *lines]

    _change(target, name, work, output)


def _change(target: Target, name: str, work: Callable[[Policies], Awaitable[list[str]]], output: str) -> None:
    """Change a policy and print the lines of `work`. As JSON print the policy after it, and the lines to stderr."""

    async def changed(policies: Policies) -> tuple[list[str], Json]:
        return await work(policies), await policies.get(name)

    lines, body = within(target, changed)
    for line in lines:
        click.echo(line, err=output == "json")
    if output == "json":
        print_json(body)


def _obstacle(body: Json) -> str:
    """Return the reason why the policy would not act in mode Auto now; empty = it would."""
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
