"""Picture of the demo: requested and used cores and memory of each service over the day, by contender."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlscaler_dev.demo.vertical.play import Course
from rlscaler_dev.plot import BLUE, INK, MUTED, ORANGE, PURPLE, picture

COLOURS = {"alone": MUTED, "vpa": ORANGE, "rlscaler": BLUE, "together": PURPLE}
PANELS = (("pods", "pods", None), ("cores", "cores", "used_cores"), ("gib", "GiB", "used_gib"))


def draw(courses: Sequence[Course], path: Path) -> None:
    """Write a PNG with a column for each service."""
    services = list(dict.fromkeys(course.service.name for course in courses))
    path.parent.mkdir(parents=True, exist_ok=True)
    with picture(path, (1.5 + 4.2 * len(services), 8.0), 110) as figure:
        grid = figure.subplots(len(PANELS), len(services), squeeze=False, sharex=True)
        for column, service in enumerate(services):
            for row, (name, label, used) in enumerate(PANELS):
                axes = grid[row, column]
                for course in courses:
                    if course.service.name != service:
                        continue
                    hours = [look["hours"] for look in course.rows]
                    title, colour = course.contender.title, COLOURS[course.contender.name]
                    axes.step(hours, [look[name] for look in course.rows], where="post", color=colour, label=title)
                    if used and course.contender.name == "rlscaler":
                        values = [look[used] for look in course.rows]
                        axes.plot(hours, values, color=INK, linewidth=1.0, linestyle=":", label="used, rlscaler")
                axes.set_ylim(bottom=0)
                if column == 0:
                    axes.set_ylabel(f"requested {label}" if used else label)
            grid[0, column].set_title(service, loc="left")
            grid[-1, column].set_xlabel("hours")
        figure.legend(*grid[1, 0].get_legend_handles_labels(), loc="upper right", ncols=5, fontsize=9)
        figure.suptitle("Sizes of pods beside their number", x=0.02, ha="left")
        figure.tight_layout()
