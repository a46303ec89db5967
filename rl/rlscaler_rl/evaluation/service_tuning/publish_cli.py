"""`rlscaler publish`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--name", help="Of the ConfigMap; the policy's name and `-policy` if not.")
@click.option("--namespace", help="Of the ConfigMap; the policy's if not.")
@click.option("--apply", "applied", is_flag=True, help="Apply it on the server instead of printing it.")
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="With --apply.")
@click.option("--force", is_flag=True, help="Publish also what has no verdict or the verdict `do not publish`.")
def publish(
    folder: Path, name: str | None, namespace: str | None, applied: bool, kubeconfig: Path | None, force: bool
) -> None:
    """Write the policy that `rlscaler train --for` left in FOLDER as a ConfigMap, as YAML to standard output.

    What the RLScalingPolicy has to say to use it goes to standard error.
    """
    from rlscaler_rl.evaluation.service_tuning import publish as publishing

    if kubeconfig is not None and not applied:
        raise click.UsageError("--kubeconfig: only with --apply")
    package = publishing.read_folder(folder, force=force)
    verdict = package.verdict
    name = name or (f"{verdict.name}-policy" if verdict else None)
    namespace = namespace or (verdict.namespace if verdict else None)
    if name is None or namespace is None:
        raise click.UsageError(f"{folder} names no service: give --name and --namespace")
    body = publishing.config_map(package, name, namespace)
    if applied:
        version = publishing.apply(body, kubeconfig)
        click.echo(f"ConfigMap {namespace}/{name} applied, resourceVersion {version}")
    else:
        click.echo(publishing.to_yaml(body), nl=False)
    click.echo(f"To use it in namespace {namespace}:\n{publishing.snippet(name)}", err=True, nl=False)
