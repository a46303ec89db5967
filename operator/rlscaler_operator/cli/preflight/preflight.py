"""`rlscaler preflight`: one line for each requirement of a policy, with the remedy where it is not met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from rlscaler_core.options import output_option
from rlscaler_operator.cli.checks import CheckList
from rlscaler_operator.cli.connection import PROMETHEUS_URL, Target, cluster_options, settings_errors, within

if TYPE_CHECKING:
    from rlscaler_core.api import RLScalingPolicy
    from rlscaler_operator.cli.objects import Policies
    from rlscaler_operator.cluster.kube import Kube
    from rlscaler_operator.settings import Settings

OPERATOR = "rlscaler-system/rlscaler"
"""The account that docs/operations/install.md installs."""


@click.command()
@click.argument("policy", type=click.Path(path_type=Path))
@cluster_options
@PROMETHEUS_URL
@click.option("--scrape-interval", type=float, help="Seconds between two scrapes, as the operator is told.")
@click.option("--operator", default=OPERATOR, show_default=True, help="The operator's ServiceAccount, NAMESPACE/NAME.")
@click.option("--lease-name", default="rlscaler", show_default=True, help="Name of the operators' Lease.")
@output_option
def preflight(
    policy: Path,
    target: Target,
    prometheus_url: str | None,
    scrape_interval: float | None,
    operator: str,
    lease_name: str,
    output: str,
) -> None:
    """Ask the cluster and Prometheus for all that the RLScalingPolicy in the file POLICY needs.

    Prints a line for each requirement, and below it the remedy where it is not met: FAIL keeps the policy from working,
    warn does not. Nothing is changed. Exit code 1 where a line says FAIL. Other settings of the operator come from
    RLSCALER_<NAME> in the environment.

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
    declared = parsed.metadata.namespace
    checks = CheckList(output)
    options = {"lease_name": lease_name, "scrape_interval_seconds": scrape_interval}

    async def work(policies: Policies) -> None:
        namespace = policies.namespace
        if declared not in ("", namespace):
            text = f"{policy}: metadata.namespace is {declared} and -n {namespace}: name one of them"
            raise click.UsageError(text)
        parsed.metadata.namespace = namespace
        own = {**options, "kubeconfig": policies.settings.kubeconfig}
        await check_policy(policies.kube, body, parsed, checks, operator, prometheus_url, own)

    within(replace(target, namespace=target.namespace or declared or None), work, read_only=True)
    checks.end(policy=parsed.metadata.name)


def _settings(**options: Any) -> Settings:
    from rlscaler_operator.settings import Settings

    # Whether this operator's administrator allows the policy's servers is not known here: `*` lets them be asked.
    return Settings(allowed_prometheus_urls=("*",), allowed_kafka_servers=("*",), **options)


def _as_new(body: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return the object as the operator would meet it, newer than the one in the cluster; Off counts as Shadow."""
    spec = dict(body["spec"])
    if spec.get("mode") == "Off":
        spec["mode"] = "Shadow"
    metadata = {**body["metadata"], "namespace": namespace, "uid": "preflight", "generation": 1}
    return {**body, "metadata": metadata, "spec": spec}


async def check_policy(
    kube: Kube,
    body: dict[str, Any],
    parsed: RLScalingPolicy,
    checks: CheckList,
    operator: str = OPERATOR,
    prometheus_url: str | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Add every check of a policy in the namespace of `parsed`. Nothing is changed.

    :param operator: the operator's ServiceAccount, NAMESPACE/NAME.
    :param prometheus_url: Prometheus as it is reached from here; None: the one that the policy names.
    :param options: further `Settings` of the operator; None leaves one at its default.
    """
    from rlscaler_operator.cli.preflight.look import close, look
    from rlscaler_operator.cli.preflight.rights import check_accepted, check_operator
    from rlscaler_operator.cli.preflight.room import check_room
    from rlscaler_operator.cli.preflight.series import check_series
    from rlscaler_operator.cli.preflight.sizes import check_sizes
    from rlscaler_operator.cli.preflight.targets import check_targets
    from rlscaler_operator.cli.verify import definition

    namespace = parsed.metadata.namespace
    lease_namespace = operator.split("/")[0]
    chosen = {
        **options,
        "namespaces": (namespace,),
        "lease_namespace": lease_namespace,
        "prometheus_url": prometheus_url,
    }
    with settings_errors():
        settings = _settings(**{name: value for name, value in chosen.items() if value is not None})
    body = _as_new(body, namespace)
    served = await definition(kube)
    checks.add(served)
    if served.failed:
        return
    checks.add(await check_accepted(kube, body, namespace))
    checks.add(*await check_operator(kube, settings, operator, parsed))
    checks.add(*await check_sizes(kube, operator, parsed))
    seen = await look(kube, settings, body, prometheus_url)
    try:
        checks.add(*check_targets(seen))
        checks.add(*await check_series(seen))
        checks.add(*await check_room(kube, seen))
    finally:
        await close(seen.context)
