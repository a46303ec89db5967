"""`rlscaler explain`: why one recorded decision came out as it did."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlscaler_core.options import output_option
from rlscaler_operator.cli.connection import Target, cluster_options, complete_names, log_options, within
from rlscaler_operator.cli.terminal import print_json, print_page

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rlscaler_operator.records.log import Line

LAST, CHANGES = "last", "changes"
SHORTEST_PREFIX = 4
FOR_REPLAY = ("params", "state", "samples", "guards")
"""Parts of a record that only a replay needs."""


@click.command()
@click.argument("what", metavar="POLICY|ID|changes", shell_complete=complete_names)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@cluster_options
@log_options("With PATHS: ")
@output_option
def explain(
    what: str, paths: tuple[Path, ...], target: Target, models: tuple[Path, ...], policy: str | None, output: str
) -> None:
    """Show why a decision came out as it did: the newest one of POLICY, or decision ID in the audit logs PATHS.

    Without PATHS the policy's status on the cluster is shown: measured signals, the action of the actor, the changes of
    each guard, and the last changes of replicas.

    With PATHS the decision is computed again, and besides: the actor's probabilities, the replicas without each guard,
    and the nearest values of the measured signals at which the actor would have chosen another action. ID is as in
    status.lastDecision.id, its beginning, or "last"; "changes" lists every change of replicas, such as those of a day.

    \b
    rlscaler explain chat -n workloads
    rlscaler explain last results/demo-daily
    rlscaler explain 01a1fefb /var/log/rlscaler/audit.jsonl
    rlscaler explain changes /var/log/rlscaler --policy workloads/chat
    """
    if paths and what == CHANGES:
        _explain_changes(paths, policy, output)
    elif paths:
        _explain_record(what, paths, models, policy, output)
    elif models or policy:
        raise click.UsageError("--model and --policy are about audit logs: name their PATHS, or leave the options out")
    else:
        _explain_status(target, what, output)


def _explain_status(target: Target, name: str, output: str) -> None:
    from rlscaler_operator.cli.explain.status_page import status_page

    body = within(target, lambda policies: policies.get(name))
    page = status_page(body)
    if page is None:
        raise click.ClickException(f"nothing was decided for {name} yet: see `rlscaler status {name}`")
    if output == "json":
        print_json({key: body["status"].get(key) for key in ("lastDecision", "observation", "history")})
    else:
        print_page(page)


def _explain_record(
    decision_id: str, paths: tuple[Path, ...], models: tuple[Path, ...], policy: str | None, output: str
) -> None:
    from rlscaler_operator.cli.explain.analysis import analyse
    from rlscaler_operator.cli.explain.record_page import record_page
    from rlscaler_operator.cli.replay.actors import AvailableActors
    from rlscaler_operator.exceptions import RecordError
    from rlscaler_operator.records.log import find_files, read

    try:
        record = _find(read(find_files(paths)), decision_id, policy)
        analysis = analyse(record, AvailableActors(models))
    except RecordError as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        print_json({name: record[name] for name in record if name not in FOR_REPLAY} | asdict(analysis))
    else:
        print_page(record_page(record, analysis))


def _explain_changes(paths: tuple[Path, ...], policy: str | None, output: str) -> None:
    """Print the changes of each policy in the logs, or of one."""
    from rlscaler_operator.cli.explain.changes_page import changes_of, changes_page
    from rlscaler_operator.exceptions import RecordError
    from rlscaler_operator.records.log import find_files, read

    records: dict[str, list[dict[str, Any]]] = {}
    try:
        for line in read(find_files(paths)):
            if line.record is not None and policy in (None, line.policy):
                records.setdefault(line.policy, []).append(line.record)
    except RecordError as error:
        raise click.ClickException(str(error)) from error
    pages = {name: page for name, own in records.items() if (page := changes_of(own)) is not None}
    if not pages:
        raise click.ClickException(f"no decision{f' of {policy}' if policy else ''} is in the log")
    if output == "json":
        print_json({name: asdict(page) for name, page in pages.items()})
    else:
        for name, page in pages.items():
            print_page(changes_page(page, name))


def _find(lines: Iterable[Line], wanted: str, policy: str | None) -> dict[str, Any]:
    """Return the record whose ID begins with `wanted`. Raises RecordError where there is none, or more than one."""
    from rlscaler_operator.exceptions import RecordError

    matches: dict[str, dict[str, Any]] = {}
    for line in lines:
        record = line.record
        if record is None or policy not in (None, line.policy):
            continue
        if wanted == LAST:
            matches = {record["decision_id"]: record}
        elif record["decision_id"] == wanted:
            return record
        elif len(wanted) >= SHORTEST_PREFIX and record["decision_id"].startswith(wanted):
            matches[record["decision_id"]] = record
    if len(matches) == 1:
        return next(iter(matches.values()))
    if matches:
        ids = ", ".join(list(matches)[:3])
        raise RecordError(f"{wanted} begins {len(matches)} decisions, {ids}, …: write more of it")
    whose = f" of {policy}" if policy else ""
    raise RecordError(
        f"no decision {wanted}{whose} is in the log: the ID is in status.lastDecision.id; older files may be gone"
    )
