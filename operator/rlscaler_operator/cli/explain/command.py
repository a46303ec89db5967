"""`rlscaler explain`: why one recorded decision came out as it did."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlscaler_core.options import output_option
from rlscaler_operator.cli.cluster import Target, check_policy_name, cluster_options, complete_names, within

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rlscaler_operator.cli.explain.analysis import Explained
    from rlscaler_operator.records.log import Line

LAST = "last"
SHORTEST_PREFIX = 4


@click.command()
@click.argument("what", metavar="POLICY|ID", shell_complete=complete_names)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@cluster_options
@click.option(
    "--model",
    "models",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help=(
        "With PATHS: ONNX file, folder or ConfigMap (YAML) of the actor, where it is not a bundled one (repeatable)."
    ),
)
@click.option("--policy", help="With PATHS: only decisions of this policy, as NAMESPACE/NAME.")
@output_option
def explain(
    what: str,
    paths: tuple[Path, ...],
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    models: tuple[Path, ...],
    policy: str | None,
    output: str,
) -> None:
    """Show why a decision came out as it did: the newest one of POLICY, or decision ID in the audit logs PATHS.

    Without PATHS the cluster is asked, and what the policy's status has is shown: what was seen, what the actor asked
    for, what each guard changed, and the last changes.

    With PATHS everything is worked out again: also the actor's probabilities, what would have come out without each
    guard, and the nearest values of the measured signals at which the actor would have asked for something else. ID is
    as in status.lastDecision.id, its beginning, or "last".

    \b
    rlscaler explain chat -n workloads
    rlscaler explain last results/demo-rl-spike
    rlscaler explain 01a1fefb /var/log/rlscaler/audit.jsonl
    """
    as_json = output == "json"
    if paths:
        check_policy_name(policy)
        _explain_record(what, paths, models, policy, as_json)
    elif models or policy:
        raise click.UsageError("--model and --policy are about audit logs: name their PATHS, or leave the options out")
    else:
        _explain_live(Target(kubeconfig, context, namespace), what, as_json)


def _explain_live(target: Target, name: str, as_json: bool) -> None:
    from rich.console import Console

    from rlscaler_operator.cli.explain.live import live_page

    body = within(target, lambda policies: policies.get(name))
    page = live_page(body)
    if page is None:
        raise click.ClickException(f"nothing was decided for {name} yet: see `rlscaler status {name}`")
    if as_json:
        status = body["status"]
        click.echo(json.dumps({key: status.get(key) for key in ("lastDecision", "observation", "history")}, indent=2))
    else:
        Console(highlight=False).print(page)


def _explain_record(
    decision_id: str, paths: tuple[Path, ...], models: tuple[Path, ...], policy: str | None, as_json: bool
) -> None:
    from rich.console import Console

    from rlscaler_operator.cli.explain.analysis import work_out
    from rlscaler_operator.cli.explain.page import page
    from rlscaler_operator.cli.replay.actors import AvailableActors
    from rlscaler_operator.exceptions import RecordError
    from rlscaler_operator.records.log import find_files, read

    try:
        record = _find(read(find_files(paths)), decision_id, policy)
        explained = work_out(record, AvailableActors(models))
    except RecordError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps(_shown(record, explained), indent=2))
    else:
        Console(highlight=False).print(page(record, explained))


def _find(lines: Iterable[Line], wanted: str, policy: str | None) -> dict[str, Any]:
    """Find the record whose ID begins so. Raises RecordError where there is none, or more than one."""
    from rlscaler_operator.exceptions import RecordError

    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        record = line.record
        if record is None or policy not in (None, f"{record.get('namespace')}/{record.get('name')}"):
            continue
        if wanted == LAST:
            found = {record["decision_id"]: record}
        elif record["decision_id"] == wanted:
            return record
        elif len(wanted) >= SHORTEST_PREFIX and record["decision_id"].startswith(wanted):
            found[record["decision_id"]] = record
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise RecordError(f"{wanted} begins {len(found)} decisions, {', '.join(list(found)[:3])}, …: write more of it")
    whose = f" of {policy}" if policy else ""
    raise RecordError(
        f"no decision {wanted}{whose} is in the log: the ID is in status.lastDecision.id; older files may be gone"
    )


def _shown(record: dict[str, Any], explained: Explained) -> dict[str, Any]:
    """Give everything but the tables that only a replay needs."""
    kept = {name: value for name, value in record.items() if name not in ("params", "state", "samples", "guards")}
    return kept | asdict(explained)
