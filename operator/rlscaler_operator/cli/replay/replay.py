"""`rlscaler replay`: take the decisions of an audit log again."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlscaler_core.options import output_option
from rlscaler_operator.cli.connection import log_options
from rlscaler_operator.cli.terminal import print_json

if TYPE_CHECKING:
    from rlscaler_operator.cli.replay.compare import ReplayedDecision
    from rlscaler_operator.cli.replay.sharings import ReplayedSharing
    from rlscaler_operator.records.log import Line

DIFFERENT, NOT_REPLAYED = 1, 3
"""Exit codes; where both apply, the first one is returned."""

SHOWN = 20


class NotReplayed(click.ClickException):
    exit_code = NOT_REPLAYED


@dataclass(slots=True)
class Tally:
    """Counts of the decisions and sharings of all logs."""

    decisions: Counter[str] = field(default_factory=Counter)
    """Decisions by result: same, different or not replayed."""
    sharings: Counter[str] = field(default_factory=Counter)
    """Sharings of budgets by the same results."""
    torn: int = 0
    probability_error: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    policies: set[str] = field(default_factory=set)
    runtimes: set[str] = field(default_factory=set)

    def add(self, replayed: ReplayedDecision | ReplayedSharing) -> None:
        from rlscaler_operator.cli.replay.sharings import ReplayedSharing

        line, result = replayed.line, "same"
        if replayed.problem or replayed.differences:
            result = "not replayed" if replayed.problem else "different"
        if isinstance(replayed, ReplayedSharing):
            self.sharings[result] += 1
            return
        if line.torn:
            self.torn += 1
            return
        self.decisions[result] += 1
        self.probability_error = max(self.probability_error, replayed.probability_error)
        if line.record is not None:
            self.kinds[str(line.record.get("kind"))] += 1
            self.policies.add(line.policy)
            self.runtimes.add(_versions(line.record.get("runtime") or {}))

    @property
    def different(self) -> int:
        return self.decisions["different"] + self.sharings["different"]

    @property
    def exit_code(self) -> int:
        if self.different:
            return DIFFERENT
        whole = self.decisions and not self.decisions["not replayed"] and not self.sharings["not replayed"]
        return 0 if whole else NOT_REPLAYED

    def to_dict(self) -> dict[str, Any]:
        return {
            "decisions": self.decisions.total(),
            "same": self.decisions["same"],
            "different": self.decisions["different"],
            "notReplayed": self.decisions["not replayed"],
            "torn": self.torn,
            "sharings": self.sharings.total(),
            "sharingsSame": self.sharings["same"],
            "kinds": dict(self.kinds),
            "policies": len(self.policies),
            "largestProbabilityError": self.probability_error,
        }


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=False, path_type=Path))
@log_options()
@click.option("--all", "show_all", is_flag=True, help=f"Show every difference, not only the first {SHOWN}.")
@output_option
def replay(paths: tuple[Path, ...], models: tuple[Path, ...], policy: str | None, show_all: bool, output: str) -> None:
    """Take every decision and every sharing of a budget in the audit logs PATHS again and compare.

    A path is a log (the rotated files beside it count) or a folder with audit.jsonl, such as a demo's results. Action,
    replicas, every guard's step, placement, weights and grants have to be the same, probabilities within 1e-5. Exit
    code 0: all are the same; 1: some are different; 3: some could not be taken again (an unreadable line, or a missing
    actor).
    """
    from rlscaler_operator.cli.replay.actors import AvailableActors
    from rlscaler_operator.cli.replay.compare import replay as replayed_lines
    from rlscaler_operator.exceptions import RecordError
    from rlscaler_operator.records.log import find_files, read

    tally, problems = Tally(), set[str]()
    limit = sys.maxsize if show_all else SHOWN
    try:
        lines = (line for line in read(find_files(paths)) if policy is None or line.concerns(policy))
        for replayed in replayed_lines(lines, AvailableActors(models)):
            tally.add(replayed)
            problem = "" if replayed.line.torn else replayed.problem
            # One missing actor may be the cause of thousands of problems: each text is printed once.
            news = bool(replayed.differences) or bool(problem and problem not in problems)
            if news and len(problems) + tally.different <= limit:
                problems |= {problem} - {""}
                click.echo(_describe(replayed), err=True)
    except RecordError as error:
        raise NotReplayed(str(error)) from error
    if output == "json":
        print_json(tally.to_dict())
    else:
        click.echo(_text(tally))
    if not (tally.decisions or tally.sharings):
        whose = f" of {policy}" if policy else ""
        click.echo(f"no decision{whose} is in {', '.join(map(str, paths))}: name an operator's audit log", err=True)
    sys.exit(tally.exit_code)


def _describe(replayed: ReplayedDecision | ReplayedSharing) -> str:
    head = f"{replayed.line.place}: {_title(replayed.line)}"
    if replayed.problem:
        return f"{head}: not replayed: {replayed.problem}"
    return "\n".join([f"{head}: different", *(f"  {text}" for text in replayed.differences)])


def _title(line: Line) -> str:
    if line.sharing is not None:
        return f"{line.sharing['sharing_id']} RLScalingBudget {line.sharing.get('budget', '')}"
    record = line.record or {}
    return f"{record.get('decision_id', '')} {record.get('namespace', '')}/{record.get('name', '')}"


def _text(tally: Tally) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.kinds.items()))
    policies = "policy" if len(tally.policies) == 1 else "policies"
    lines = [
        f"{tally.decisions.total()} decisions ({kinds or 'none'}) of {len(tally.policies)} {policies}",
        _same(tally.decisions),
        f"  different     {tally.decisions['different']:8d}",
        f"  not replayed  {tally.decisions['not replayed']:8d}",
        f"  largest difference of a probability  {tally.probability_error:.2g}",
    ]
    if tally.sharings:
        lines += [f"{tally.sharings.total()} sharings of budgets", _same(tally.sharings)]
    if tally.torn:
        lines.append(f"  {tally.torn} lines were cut short when the operator was killed or the disk was full")
    from rlscaler_operator.records.record import runtime

    others = tally.runtimes - {_versions(runtime())}
    if others:
        lines.append(f"  recorded with {'; '.join(sorted(others))}; replayed with {_versions(runtime())}")
    return "\n".join(lines)


def _same(results: Counter[str]) -> str:
    return f"  same          {results['same']:8d}  {100 * results['same'] / max(results.total(), 1):.4g} %"


def _versions(runtime: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(runtime.items()))
