"""The documents of a result: the text report and the HTML report.

The text and the HTML report say the same, validity and losses first. The HTML report is one self-contained file:
pictures inside, no script, no network.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

from jinja2 import Environment, PackageLoader, StrictUndefined

from rlscaler_rl.evaluation.report import firstpage, tables
from rlscaler_rl.evaluation.report.tables import Table
from rlscaler_rl.evaluation.schema import ResultFile

WIDTH = 110


def text_report(result: ResultFile) -> str:
    """The whole report as one string."""
    return "\n".join(_lines(result)) + "\n"


def render(table: Table) -> list[str]:
    """A table in fixed-width columns, figures to the right."""
    title = [table.title, "-" * len(table.title), *(_wrapped(table.note) if table.note else [])]
    if not table.rows:
        return [*title, "  none", ""]
    every = [table.header, *table.rows]
    widths = [max(len(row[column]) for row in every) for column in range(len(table.header))]

    def line(row: tuple[str, ...]) -> str:
        cells = (
            cell.ljust(width) if column < table.text_columns else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return ("  " + "  ".join(cells)).rstrip()

    return [*title, line(table.header), *(line(row) for row in table.rows), ""]


def _lines(result: ResultFile) -> Iterator[str]:
    yield f"rlscaler {result.kind}: {result.model.name}"
    yield "=" * WIDTH
    yield from validity(result)
    for line in firstpage.headline(result):
        yield from _wrapped(line)
    yield ""
    losses, undecided, wins = tables.verdict_tables(result)
    first = (firstpage.losses_table(result), *firstpage.like_tables(result), firstpage.gate_table(result))
    seeds = [firstpage.seeds_table(result)] if result.training_seeds else []
    claims = [firstpage.claims_table(result)] if result.claims else []
    for table in (
        *first,
        losses,
        undecided,
        firstpage.closed_table(result),
        *seeds,
        *claims,
        *tables.score_tables(result),
        wins,
    ):
        yield from render(table)
    yield "* knows the load or its peak beforehand: a reference, not counted."
    yield "Differences are policy - contender in J; below 0 the policy is better."
    yield ""
    for table in (
        *([tables.spread_table(result)] if result.kind == "evaluation" else []),
        tables.improvement_table(result),
        tables.dependence_table(result),
        tables.invariant_table(result),
    ):
        yield from render(table)
    yield from _provenance(result)


def _wrapped(text: str) -> list[str]:
    return wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def validity(result: ResultFile) -> list[str]:
    """VALID, or INVALID with every reason."""
    if result.valid:
        return ["VALID: every invariant of the meter holds and every control scored visibly worse.", ""]
    return ["INVALID: the figures below decide nothing.", *(f"  - {reason}" for reason in result.reasons), ""]


def _provenance(result: ResultFile) -> Iterator[str]:
    yield "How it was made"
    yield "---------------"
    settings = ", ".join(f"{name} {_short(value)}" for name, value in result.settings.items())
    yield f"settings: {settings}"
    yield f"level: {result.level}; every contender met the same arrivals and the same cold starts; run r uses seed + r"
    yield f"model: {result.model.name}, stack {result.model.stack_size}, residual {result.model.residual}"
    yield f"       sha256 {result.digests.model}"
    for sibling in result.seeds:
        yield f"       other training seed: {sibling.name}"
    yield f"digests: rows {result.digests.rows}"
    for name, digest in result.digests.scenarios.items():
        yield f"         {name} {digest}"
    yield f"{result.created}, {result.wall_seconds:.0f} s on {result.machine}; " + ", ".join(
        f"{name} {number}" for name, number in result.versions.items()
    )
    yield f"files: {', '.join(result.files)}"


def _short(value: object) -> str:
    return "/".join(map(str, value)) if isinstance(value, list) else str(value)


def html_report(result: ResultFile, pictures: list[tuple[str, Path]]) -> str:
    """`pictures`: (caption, PNG file), embedded in this order."""
    environment = Environment(
        loader=PackageLoader("rlscaler_rl.evaluation.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    losses, undecided, wins = tables.verdict_tables(result)
    return environment.get_template("report.html.j2").render(
        result=result,
        headline=firstpage.headline(result),
        first=firstpage.losses_table(result),
        like=firstpage.like_tables(result),
        gate=firstpage.gate_table(result),
        closed=firstpage.closed_table(result),
        seeds=firstpage.seeds_table(result),
        claims=firstpage.claims_table(result),
        losses=losses,
        undecided=undecided,
        wins=wins,
        scores=tables.score_tables(result),
        checks=[tables.dependence_table(result), tables.invariant_table(result)],
        improvement=tables.improvement_table(result),
        spread=tables.spread_table(result),
        pictures=[(caption, base64.b64encode(path.read_bytes()).decode()) for caption, path in pictures],
    )
