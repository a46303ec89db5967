"""The result folder of what was played: rows, validity, digests, provenance, and the files with their pictures."""

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
from rlscaler_rl.evaluation.claims import claims
from rlscaler_rl.evaluation.gate import closed, gate, like_for_like, training_seeds
from rlscaler_rl.evaluation.models import Loaded
from rlscaler_rl.evaluation.play import Played
from rlscaler_rl.evaluation.rows import dependence, rows
from rlscaler_rl.evaluation.schema import Dependence, Digests, Model, ResultFile, Row

_PACKAGES = ("rlscaler", "numpy", "numba", "scipy", "onnxruntime")


def result_file(
    kind: str, played: Played, loaded: Sequence[Loaded], wall_seconds: float, files: list[str]
) -> ResultFile:
    """`kind` is evaluation or comparison; `loaded` the shipped model and its siblings from other training seeds;
    `files` are the names that lie beside the JSON."""
    board = played.board
    made, checks = rows(board), dependence(board)
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
        rows=made,
        gate=gate(board),
        closed=closed(board),
        like_for_like=like_for_like(board),
        training_seeds=training_seeds(board),
        claims=claims(board),
        dependence=checks,
        invariants=played.audit.invariants(),
        digests=Digests(
            model=loaded[0].digest, settings=_sha256(settings), scenarios=played.digests, rows=rows_digest(made)
        ),
        files=files,
    )


def rows_digest(made: list[Row]) -> str:
    """Equal for two runs that saw the same numbers."""
    return _sha256([row.model_dump(mode="json") for row in made])


def _not_worse(check: Dependence) -> str:
    found = check.difference
    interval = f"policy - control {found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}], {found.percent:+.1f} %"
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
    """The names of the files in a result folder; they are those of the earlier research code."""

    folder: Path
    json: str
    main_picture: str
    front: str
    scores: str
    radar: str
    improvement: str
    timelines: dict[str, str]
    text: str
    html: str

    @classmethod
    def at(cls, kind: str, folder: Path, workloads: list[str]) -> Layout:
        """`kind` evaluation: reports carry the folder's name, comparison: `rl_comparison_*`."""
        if kind == "evaluation":
            data, main = "comprehensive_evaluation.json", "evaluation_comparison.png"
            prefix, report = "evaluation", f"{folder.name}_report"
        else:
            data, main = "rl_comparison_data.json", "rl_comparison_plots.png"
            prefix, report = "rl_comparison", "rl_comparison_report"
        front, scores, radar, improvement = (
            f"{prefix}_{name}.png" for name in ("front", "scores", "radar", "improvement")
        )
        timelines = {workload: f"{prefix}_timeline_{workload}.png" for workload in workloads}
        return cls(folder, data, main, front, scores, radar, improvement, timelines, f"{report}.txt", f"{report}.html")

    def names(self) -> list[str]:
        pictures = [self.main_picture, self.front, self.scores, self.improvement, self.radar]
        return [self.html, self.text, self.json, *pictures, *self.timelines.values()]


def write_all(layout: Layout, result: ResultFile, played: Played) -> None:
    """JSON first: figures survive even when a picture fails."""
    from rlscaler_rl.evaluation.plots import bars, look, overview, radar, scores
    from rlscaler_rl.evaluation.report.documents import html_report, text_report

    layout.folder.mkdir(parents=True, exist_ok=True)
    (layout.folder / layout.json).write_text(result.model_dump_json(indent=1) + "\n")
    (layout.folder / layout.text).write_text(text_report(result))
    evaluation = result.kind == "evaluation"
    pictures = [
        (
            "Scores metric by metric" if evaluation else "Against the tuned rivals, losses first",
            layout.main_picture,
            bars.metrics if evaluation else overview.overview,
        ),
        ("Cost-late front", layout.front, scores.fronts),
        ("Scores of all contenders", layout.scores, scores.ladders),
        ("Improvement over default HPA", layout.improvement, bars.improvement),
        ("Qualities at a glance", layout.radar, radar.radar),
    ]
    for _, name, draw in pictures:
        look.save(draw(result), layout.folder / name)
    shown = [(caption, layout.folder / name) for caption, name, _ in pictures] + _timelines(layout, played)
    (layout.folder / layout.html).write_text(html_report(result, shown))


def _timelines(layout: Layout, played: Played) -> list[tuple[str, Path]]:
    from rlscaler_rl.evaluation.plots import look, timeline
    from rlscaler_rl.evaluation.report import tables

    made = []
    for workload, name in layout.timelines.items():
        panels = [
            (entry.label, played.timelines[workload, entry.name])
            for entry in played.entries
            if (workload, entry.name) in played.timelines
        ]
        look.save(timeline.timeline(workload, panels), layout.folder / name)
        made.append((f"{tables.title(workload)}, second by second", layout.folder / name))
    return made
