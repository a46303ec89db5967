"""Result folder of an evaluation: rows, validity, digests, provenance, and the files with their pictures."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rlscaler_rl.evaluation.board import METRICS
from rlscaler_rl.evaluation.gate import closed, gate, like_for_like, training_seeds
from rlscaler_rl.evaluation.models import Loaded
from rlscaler_rl.evaluation.play import Played
from rlscaler_rl.evaluation.rows import dependence, rows
from rlscaler_rl.evaluation.schema import Dependence, Digests, Model, ResultFile, Row

_PACKAGES = ("rlscaler", "numpy", "numba", "scipy", "onnxruntime")


def result_file(
    kind: str, played: Played, loaded: Sequence[Loaded], wall_seconds: float, files: list[str]
) -> ResultFile:
    """Return the result of the played episodes.

    `kind` is evaluation or comparison, `loaded` the shipped model and its siblings from other training seeds, `files`
    the names beside the JSON.
    """
    board = played.board
    all_rows, checks = rows(board), dependence(board)
    reasons = played.audit.reasons() + [_not_worse(check) for check in checks if not check.passed]
    settings = played.settings.model_dump(mode="json")
    return ResultFile(
        kind=kind,
        level=played.settings.level,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        wall_seconds=round(wall_seconds, 2),
        valid=not reasons,
        reasons=reasons,
        settings=settings,
        model=_model(loaded[0]),
        seeds=[_model(sibling) for sibling in loaded[1:]],
        metrics=METRICS,
        workloads=played.workloads,
        rows=all_rows,
        gate=gate(board),
        closed=closed(board),
        like_for_like=like_for_like(board),
        training_seeds=training_seeds(board),
        dependence=checks,
        invariants=played.audit.invariants(),
        digests=Digests(
            model=loaded[0].digest, settings=_sha256(settings), scenarios=played.digests, rows=rows_digest(all_rows)
        ),
        files=files,
    )


def rows_digest(rows: list[Row]) -> str:
    """Return a digest that is equal for two runs with the same figures."""
    return _sha256([row.model_dump(mode="json") for row in rows])


def _not_worse(check: Dependence) -> str:
    apart = check.difference
    interval = f"policy - control {apart.mean:+.2f} [{apart.low:+.2f}, {apart.high:+.2f}], {apart.percent:+.1f} %"
    return (
        f"the outcome does not depend visibly on the network: {check.label} should score at least "
        f"{check.required_percent:g} % worse with an interval off zero ({interval})"
    )


def _model(loaded: Loaded) -> Model:
    manifest = loaded.actor.manifest
    return Model(
        name=loaded.name,
        path=str(loaded.path) if loaded.path else None,
        contract_version=manifest.contract_version,
        stack_size=manifest.stack_size,
        residual=manifest.residual,
        rule=manifest.rule.model_dump() if manifest.residual else None,
        provenance=manifest.training.model_dump(mode="json"),
    )


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Layout:
    """Names of the files in a result folder. Users' scripts read them, so they do not change."""

    folder: Path
    kind: str
    """`evaluation` or `comparison`."""

    workloads: Sequence[str]

    @property
    def json(self) -> str:
        return "comprehensive_evaluation.json" if self.kind == "evaluation" else "rl_comparison_data.json"

    @property
    def text(self) -> str:
        return f"{self._report}.txt"

    @property
    def html(self) -> str:
        return f"{self._report}.html"

    @property
    def _report(self) -> str:
        return f"{self.folder.name}_report" if self.kind == "evaluation" else "rl_comparison_report"

    def picture(self, name: str) -> str:
        """Return the file of a picture by its key in `PICTURES`, or of the time-lines of a workload."""
        if name == "main":
            return "evaluation_comparison.png" if self.kind == "evaluation" else "rl_comparison_plots.png"
        return f"{'evaluation' if self.kind == 'evaluation' else 'rl_comparison'}_{name}.png"

    def names(self) -> list[str]:
        """Return all names, the report first."""
        pictures = [*PICTURES, *(f"timeline_{workload}" for workload in self.workloads)]
        return [self.html, self.text, self.json, *map(self.picture, pictures)]


PICTURES = ("main", "front", "scores", "radar")
"""Keys of the pictures in the order in which the HTML report shows them."""


def write_all(layout: Layout, result: ResultFile, played: Played) -> None:
    """Write every file of `layout`."""
    from rlscaler_rl.evaluation.plots import bars, overview, radar, scores, timeline
    from rlscaler_rl.evaluation.report.documents import html_report, text_report
    from rlscaler_rl.evaluation.report.tables import title
    from rlscaler_rl.results import figures

    # The JSON and the text come first, so that figures survive a picture that cannot be drawn.
    layout.folder.mkdir(parents=True, exist_ok=True)
    (layout.folder / layout.json).write_text(result.json_text() + "\n")
    (layout.folder / layout.text).write_text(text_report(result))
    main = ("Against the tuned rivals, losses first", overview.overview)
    if layout.kind == "evaluation":
        main = ("Scores metric by metric", bars.metrics)
    drawings = (
        main,
        ("Cost-late front", scores.fronts),
        ("Scores of all contenders", scores.ladders),
        ("Qualities at a glance", radar.radar),
    )
    shown = []
    for key, (caption, draw) in zip(PICTURES, drawings, strict=True):
        shown.append((caption, layout.folder / layout.picture(key)))
        figures.save(draw(result), shown[-1][1])
    for workload in layout.workloads:
        shown.append((f"{title(workload)}, second by second", layout.folder / layout.picture(f"timeline_{workload}")))
        records = {entry.label: played.timelines.get((workload, entry.name)) for entry in played.entries}
        panels = [(label, record) for label, record in records.items() if record is not None]
        figures.save(timeline.timeline(workload, panels), shown[-1][1])
    (layout.folder / layout.html).write_text(html_report(result, shown))
