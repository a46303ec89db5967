"""The HTML report: one self-contained file, pictures inside, no script, no network."""

from __future__ import annotations

import base64
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from rlscaler_rl.evaluation.report import firstpage, tables
from rlscaler_rl.evaluation.schema import ResultFile


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
