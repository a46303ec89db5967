"""The files of a result folder and what goes into each; the names are those of the earlier research code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlscaler_rl.evaluation.play import Played
from rlscaler_rl.evaluation.result import write_json
from rlscaler_rl.evaluation.schema import ResultFile


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything goes."""

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
    from rlscaler_rl.evaluation.plots import bars, improvement, look, overview, radar, scores
    from rlscaler_rl.evaluation.report.html import html_report
    from rlscaler_rl.evaluation.report.text import text_report

    layout.folder.mkdir(parents=True, exist_ok=True)
    write_json(result, layout.folder / layout.json)
    (layout.folder / layout.text).write_text(text_report(result))
    evaluation = result.kind == "evaluation"
    pictures = [
        (
            "Scores metric by metric" if evaluation else "Against the tuned rivals, losses first",
            layout.main_picture,
            bars.bars if evaluation else overview.overview,
        ),
        ("Cost-late front", layout.front, scores.fronts),
        ("Everybody's score", layout.scores, scores.ladders),
        ("Improvement over default HPA", layout.improvement, improvement.improvement),
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
