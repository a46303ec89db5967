"""`rlscaler preflight`: one line for each thing that a policy needs, with the remedy where it is not there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlscaler_core.options import output_option
from rlscaler_operator.cli.cluster import Policies, Target, cluster_options, settings_errors, within

if TYPE_CHECKING:
    from rlscaler_core.api import RLScalingPolicy
    from rlscaler_operator.cli.findings import Finding
    from rlscaler_operator.settings import Settings

OPERATOR = "rlscaler-system/rlscaler"
"""The account that docs/operations/install.md installs."""


@click.command()
@click.argument("policy", type=click.Path(path_type=Path))
@cluster_options
@click.option("--prometheus-url", help="Where Prometheus is reached from here, such as a forwarded port.")
@click.option("--scrape-interval", type=float, help="Seconds between two scrapes, as the operator is told.")
@click.option("--operator", default=OPERATOR, show_default=True, help="The operator's ServiceAccount, NAMESPACE/NAME.")
@click.option("--lease-name", default="rlscaler", show_default=True, help="Name of the operators' Lease.")
@output_option
def preflight(
    policy: Path,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    prometheus_url: str | None,
    scrape_interval: float | None,
    operator: str,
    lease_name: str,
    output: str,
) -> None:
    """Ask the cluster and Prometheus for all that the RLScalingPolicy in the file POLICY needs.

    Prints a line for each requirement, and below it the remedy where something is missing: FAIL keeps the policy from
    working, warn is worth knowing. Nothing is changed. Exit code 1 where a line says FAIL. Other settings of the
    operator come from RLSCALER_<NAME> in the environment.

    \b
    rlscaler preflight chat.yaml -n workloads
    rlscaler preflight chat.yaml --prometheus-url http://127.0.0.1:9090 -o json
    """
    from rlscaler_core.api.offline import read_object

    try:
        body, parsed = read_object(policy)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if operator.count("/") != 1 or not all(operator.split("/")):
        raise click.UsageError(f"--operator {operator}: name it as NAMESPACE/SERVICEACCOUNT, such as {OPERATOR}")
    namespace = namespace or parsed.metadata.namespace or None

    async def work(policies: Policies) -> list[Finding]:
        space = policies.namespace
        if parsed.metadata.namespace not in ("", space):
            text = f"{policy}: metadata.namespace is {parsed.metadata.namespace} and -n {space}: name one of them"
            raise click.UsageError(text)
        changes: dict[str, Any] = {
            "namespaces": (space,),
            "lease_namespace": operator.split("/")[0],
            "lease_name": lease_name,
        }
        if scrape_interval is not None:
            changes["scrape_interval_seconds"] = scrape_interval
        if prometheus_url is not None:
            changes["prometheus_url"] = prometheus_url
        with settings_errors():
            settings = _settings(policies.settings, changes)
        return await _check(policies, settings, _as_new(body, space), parsed, operator, prometheus_url, output)

    found = within(Target(kubeconfig, context, namespace), work, read_only=True)
    if output == "json":
        from rlscaler_operator.cli.findings import as_json

        click.echo(as_json(found, policy=parsed.metadata.name))
    sys.exit(1 if any(finding.failed for finding in found) else 0)


def _settings(before: Settings, changes: dict[str, Any]) -> Settings:
    from rlscaler_operator.settings import Settings

    # Whether this operator's administrator allows what the policy names is not known here: `*` lets it be asked.
    anything = {"allowed_prometheus_urls": ("*",), "allowed_kafka_servers": ("*",)}
    return Settings(**{"kubeconfig": before.kubeconfig, **anything, **changes})


def _as_new(body: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The object as the operator would meet it, newer than whatever is there; Off counts as Shadow."""
    spec = dict(body["spec"])
    if spec.get("mode") == "Off":
        spec["mode"] = "Shadow"
    metadata = {**body["metadata"], "namespace": namespace, "uid": "preflight", "generation": 1}
    return {**body, "metadata": metadata, "spec": spec}


async def _check(
    policies: Policies,
    settings: Settings,
    body: dict[str, Any],
    parsed: RLScalingPolicy,
    operator: str,
    prometheus_url: str | None,
    output: str,
) -> list[Finding]:
    from rlscaler_operator.cli.findings import show
    from rlscaler_operator.cli.preflight.look import close, look
    from rlscaler_operator.cli.preflight.rights import check_accepted, check_operator
    from rlscaler_operator.cli.preflight.room import check_room
    from rlscaler_operator.cli.preflight.series import check_series
    from rlscaler_operator.cli.preflight.sizes import check_sizes
    from rlscaler_operator.cli.preflight.targets import check_targets
    from rlscaler_operator.cli.verify import definition

    found: list[Finding] = []

    def say(*findings: Finding) -> None:
        found.extend(findings)
        for finding in findings if output != "json" else ():
            show(finding)

    kube = policies.kube
    parsed.metadata.namespace = policies.namespace
    say(served := await definition(kube))
    if served.failed:
        return found
    say(await check_accepted(kube, body, policies.namespace))
    say(*await check_operator(kube, settings, operator, parsed))
    say(*await check_sizes(kube, operator, parsed))
    seen = await look(kube, settings, body, prometheus_url)
    try:
        say(*check_targets(seen))
        say(*await check_series(seen))
        say(*await check_room(kube, seen))
    finally:
        await close(seen.context)
    return found
