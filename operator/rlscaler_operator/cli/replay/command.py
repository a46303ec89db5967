"""`rlscaler replay`: take the decisions of an audit log again."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlscaler_core.options import output_option
from rlscaler_operator.cli.cluster import check_policy_name

if TYPE_CHECKING:
    from rlscaler_operator.cli.replay.compare import Replayed
    from rlscaler_operator.cli.replay.sharing import SharedAgain
    from rlscaler_operator.records.log import Line

DIFFERENT, NOT_REPLAYED = 1, 3
"""Exit codes; where both are due, it is the first."""

SHOWN = 20


class NotReplayed(click.ClickException):
    exit_code = NOT_REPLAYED


@dataclass(slots=True)
class Tally:
    """What came out of a whole log."""

    decisions: int = 0
    same: int = 0
    different: int = 0
    not_replayed: int = 0
    torn: int = 0
    sharings: int = 0
    sharings_same: int = 0
    sharings_different: int = 0
    probability_error: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    policies: set[str] = field(default_factory=set)
    runtimes: set[str] = field(default_factory=set)

    def add(self, one: Replayed | SharedAgain) -> None:
        from rlscaler_operator.cli.replay.sharing import SharedAgain

        if isinstance(one, SharedAgain):
            self.sharings += 1
            self.sharings_same += not (one.problem or one.differences)
            self.sharings_different += bool(one.differences)
            return
        if one.line.torn:
            self.torn += 1
            return
        self.decisions += 1
        if not one.decided:
            self.not_replayed += 1
        elif one.differences:
            self.different += 1
        else:
            self.same += 1
        self.probability_error = max(self.probability_error, one.probability_error)
        if one.line.record is not None:
            record = one.line.record
            self.kinds[str(record.get("kind"))] += 1
            self.policies.add(f"{record.get('namespace')}/{record.get('name')}")
            self.runtimes.add(_versions(record.get("runtime") or {}))

    @property
    def exit_code(self) -> int:
        if self.different or self.sharings_different:
            return DIFFERENT
        whole = self.decisions and not self.not_replayed and self.sharings_same == self.sharings
        return 0 if whole else NOT_REPLAYED

    def to_dict(self) -> dict[str, Any]:
        return {
            "decisions": self.decisions,
            "same": self.same,
            "different": self.different,
            "notReplayed": self.not_replayed,
            "torn": self.torn,
            "sharings": self.sharings,
            "sharingsSame": self.sharings_same,
            "kinds": dict(self.kinds),
            "policies": len(self.policies),
            "largestProbabilityError": self.probability_error,
        }


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=False, path_type=Path))
@click.option(
    "--model",
    "models",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help=("ONNX file, folder or ConfigMap (YAML) of the actor, where it is not a bundled one (repeatable)."),
)
@click.option("--policy", help="Only decisions of this policy, as NAMESPACE/NAME.")
@click.option("--all", "show_all", is_flag=True, help=f"Show every difference, not only the first {SHOWN}.")
@output_option
def replay(paths: tuple[Path, ...], models: tuple[Path, ...], policy: str | None, show_all: bool, output: str) -> None:
    """Take every decision and every sharing of a budget in the audit logs PATHS again and compare.

    A path is a log (the rotated files beside it count) or a folder with audit.jsonl, such as a demo's results. Action,
    replicas, every guard's step, placement, weights and grants have to be the same, probabilities within 1e-5. Exit
    code 0: all are the same; 1: some are different; 3: some could not be taken again (unreadable, or the actor is not
    there).
    """
    from rlscaler_operator.cli.replay.actors import AvailableActors
    from rlscaler_operator.cli.replay.compare import replay as replayed
    from rlscaler_operator.exceptions import RecordError
    from rlscaler_operator.records.log import find_files, read

    check_policy_name(policy)
    tally, said = Tally(), set[str]()
    limit = sys.maxsize if show_all else SHOWN
    try:
        lines = (line for line in read(find_files(paths)) if _wanted(line, policy))
        for one in replayed(lines, AvailableActors(models)):
            tally.add(one)
            # One missing actor may be the cause of thousands: it is said once.
            news = bool(one.differences) or (one.problem not in said and bool(one.problem) and not one.line.torn)
            if news and (len(said) + tally.different + tally.sharings_different <= limit):
                said |= {one.problem} - {""}
                click.echo(_describe(one), err=True)
    except RecordError as error:
        raise NotReplayed(str(error)) from error
    click.echo(json.dumps(tally.to_dict(), indent=2) if output == "json" else _text(tally))
    if not (tally.decisions or tally.sharings):
        whose = f" of {policy}" if policy else ""
        click.echo(f"no decision{whose} is in {', '.join(map(str, paths))}: name an operator's audit log", err=True)
    sys.exit(tally.exit_code)


def _wanted(line: Line, policy: str | None) -> bool:
    if policy is None:
        return True
    if line.sharing is not None:
        return policy in (line.sharing.get("policies") or ())
    record = line.record
    return record is not None and policy == f"{record.get('namespace')}/{record.get('name')}"


def _describe(one: Replayed | SharedAgain) -> str:
    record, sharing = one.line.record or {}, one.line.sharing
    head = f"{one.line.place}: {record.get('decision_id', '')} {record.get('namespace', '')}/{record.get('name', '')}"
    if sharing is not None:
        head = f"{one.line.place}: {sharing['sharing_id']} RLScalingBudget {sharing.get('budget', '')}"
    if one.problem:
        return f"{head}: not replayed: {one.problem}"
    return "\n".join([f"{head}: different", *(f"  {text}" for text in one.differences)])


def _text(tally: Tally) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.kinds.items()))
    policies = "policy" if len(tally.policies) == 1 else "policies"
    lines = [
        f"{tally.decisions} decisions ({kinds or 'none'}) of {len(tally.policies)} {policies}",
        f"  same          {tally.same:8d}  {100 * tally.same / max(tally.decisions, 1):.4g} %",
        f"  different     {tally.different:8d}",
        f"  not replayed  {tally.not_replayed:8d}",
        f"  largest difference of a probability  {tally.probability_error:.2g}",
    ]
    if tally.sharings:
        lines.append(f"{tally.sharings} sharings of budgets")
        lines.append(f"  same          {tally.sharings_same:8d}  {100 * tally.sharings_same / tally.sharings:.4g} %")
    if tally.torn:
        lines.append(f"  {tally.torn} lines were cut short when the operator was killed or the disk was full")
    from rlscaler_operator.records.record import runtime

    others = tally.runtimes - {_versions(runtime())}
    if others:
        lines.append(f"  recorded with {'; '.join(sorted(others))}; replayed with {_versions(runtime())}")
    return "\n".join(lines)


def _versions(runtime: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(runtime.items()))
