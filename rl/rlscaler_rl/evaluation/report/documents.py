"""Text and HTML report of a result: the same sections in both, validity and losses first."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from rlscaler_rl.evaluation.report import firstpage, tables
from rlscaler_rl.evaluation.schema import ResultFile
from rlscaler_rl.results.table import WIDTH, Table, wrapped


@dataclass(frozen=True, slots=True)
class Section:
    """Tables that stand together in a report."""

    tables: Sequence[Table]
    folded: bool = False
    """The HTML report shows the tables on demand."""


def sections(result: ResultFile) -> list[Section]:
    """Return all sections in the order of the reports."""
    losses, undecided, wins = tables.verdict_tables(result)
    seeds = [firstpage.seeds_table(result)] if result.training_seeds else []
    first = [firstpage.losses_table(result), *firstpage.like_tables(result), firstpage.gate_table(result)]
    return [
        Section(first),
        Section([losses, undecided]),
        Section([firstpage.closed_table(result), *seeds]),
        Section(tables.score_tables(result)),
        Section([wins], folded=True),
        Section([tables.improvement_table(result), *tables.check_tables(result)]),
        Section([tables.spread_table(result)], folded=True),
        Section([tables.provenance_table(result)]),
        Section([tables.metrics_table(result)], folded=True),
    ]


def validity(result: ResultFile) -> list[str]:
    """Return VALID, or INVALID with every reason."""
    if result.valid:
        return ["VALID: every invariant of the meter holds and every control scored visibly worse.", ""]
    return ["INVALID: the figures below decide nothing.", *(f"  - {reason}" for reason in result.reasons), ""]


def text_report(result: ResultFile) -> str:
    """Return the whole report as text of fixed width."""
    lines = [f"rlscaler {result.kind}: {result.model.name}", "=" * WIDTH, *validity(result)]
    for line in firstpage.headline(result):
        lines += wrapped(line)
    lines += ["", *wrapped(NOTE), ""]
    for section in sections(result):
        for table in section.tables:
            lines += table.text()
    return "\n".join(lines) + "\n"


NOTE = (
    "Differences are policy - contender in J = cost + 0.5 x late %; below 0 the policy is better. * knows the load or "
    "its peak beforehand: a reference, not counted."
)


def html_report(result: ResultFile, pictures: list[tuple[str, Path]]) -> str:
    """Return the report as one self-contained page, without scripts.

    `pictures`: (caption, PNG file), embedded in this order.
    """
    environment = Environment(
        loader=PackageLoader("rlscaler_rl.evaluation.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        result=result,
        headline=firstpage.headline(result),
        note=NOTE,
        sections=sections(result),
        pictures=[(caption, base64.b64encode(path.read_bytes()).decode()) for caption, path in pictures],
    )
