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
    radar: str
    timelines: dict[str, str]
    text: str
    html: str

    @classmethod
    def at(cls, kind: str, folder: Path, workloads: list[str]) -> Layout:
        """`kind` evaluation: reports carry the folder's name, comparison: `rl_comparison_*`."""
        if kind == "evaluation":
            names = ("comprehensive_evaluation.json", "evaluation_comparison.png", "evaluation_radar.png")
            prefix, report = "evaluation", f"{folder.name}_report"
        else:
            names = ("rl_comparison_data.json", "rl_comparison_plots.png", "rl_comparison_radar.png")
            prefix, report = "rl_comparison", "rl_comparison_report"
        timelines = {workload: f"{prefix}_timeline_{workload}.png" for workload in workloads}
        return cls(folder, *names, timelines, f"{report}.txt", f"{report}.html")

    def names(self) -> list[str]:
        return [self.html, self.text, self.json, self.main_picture, self.radar, *self.timelines.values()]


def write_all(layout: Layout, result: ResultFile, played: Played) -> None:
    """JSON first: figures survive even when a picture fails."""
    from rlscaler_rl.evaluation.plots import bars, look, radar, scores, timeline
    from rlscaler_rl.evaluation.report import tables
    from rlscaler_rl.evaluation.report.html import html_report
    from rlscaler_rl.evaluation.report.text import text_report

    layout.folder.mkdir(parents=True, exist_ok=True)
    write_json(result, layout.folder / layout.json)
    (layout.folder / layout.text).write_text(text_report(result))
    main = bars.bars(result) if result.kind == "evaluation" else scores.comparison(result)
    look.save(main, layout.folder / layout.main_picture)
    look.save(radar.radar(result), layout.folder / layout.radar)
    for workload, name in layout.timelines.items():
        panels = [
            (entry.label, played.timelines[workload, entry.name])
            for entry in played.entries
            if (workload, entry.name) in played.timelines and entry.role != "sweep"
        ]
        look.save(timeline.timeline(workload, panels), layout.folder / name)
    caption = "Scores metric by metric" if result.kind == "evaluation" else "Scores and the cost-late front"
    pictures = [(caption, layout.main_picture), ("Qualities at a glance", layout.radar)]
    pictures += [(f"{tables.title(workload)}, second by second", name) for workload, name in layout.timelines.items()]
    page = html_report(result, [(title, layout.folder / name) for title, name in pictures])
    (layout.folder / layout.html).write_text(page)
