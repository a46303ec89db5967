"""A picture of a churn test: nodes in use, latency and evenness of each contender over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rlscaler_dev.placement.churn import Course
from rlscaler_dev.plot import BLUE, GREEN, MUTED, ORANGE, PURPLE, RED, picture

PANELS = (
    ("nodes_in_use", "nodes in use"),
    ("pods_per_node", "pods per node in use"),
    ("latency_ms", "mean latency (ms)"),
    ("uneven", "std of CPU shares"),
)

OF_PODS = ("pods_per_node", "latency_ms")
"""Panels without a value while there are no pods."""


def draw(courses: Sequence[Course], path: Path, title: str) -> None:
    """Write a PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with picture(path, (11, 6.5), 110) as figure:
        for place, (name, label) in enumerate(PANELS, 1):
            axes = figure.add_subplot(2, 2, place)
            for course, colour in zip(courses, (MUTED, BLUE, ORANGE, GREEN, RED, PURPLE), strict=False):
                seconds = [row["seconds"] for row in course.rows]
                values = [math.nan if name in OF_PODS and not row["pods"] else row[name] for row in course.rows]
                axes.plot(seconds, values, color=colour, label=course.contender)
            axes.set_ylabel(label)
            axes.set_ylim(bottom=0)
            if place > 2:
                axes.set_xlabel("seconds")
            if place == 1:
                figure.legend(loc="upper right", ncols=len(courses))
        figure.suptitle(title, x=0.02, ha="left")
        figure.tight_layout()
