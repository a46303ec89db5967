"""Pictures of a churn test: all contenders over time, and the nodes of one contender over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from rlscaler_dev.placement.churn import Course
from rlscaler_dev.plot import BLUE, GREEN, MUTED, ORANGE, PURPLE, RED, SKY, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = (MUTED, BLUE, ORANGE, GREEN, RED, PURPLE, SKY)
LINES = [(colour, style) for style in ("-", "--", ":") for colour in COLOURS]

PANELS = (
    ("nodes_in_use", "nodes in use"),
    ("pods_per_node", "pods per node in use"),
    ("latency_ms", "mean latency (ms)"),
    ("uneven", "std of CPU shares"),
)

IN_A_ROW = 5
"""Contenders in a row of the legend."""

OF_PODS = ("pods_per_node", "latency_ms")
"""Panels without a value while there are no pods."""


def draw(courses: Sequence[Course], path: Path, title: str) -> None:
    """Write a PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with picture(path, (11, 6.5), 110) as figure:
        for place, (name, label) in enumerate(PANELS, 1):
            axes = figure.add_subplot(2, 2, place)
            for course, (colour, style) in zip(courses, cycle(LINES), strict=False):
                seconds = [row["seconds"] for row in course.rows]
                values = [math.nan if name in OF_PODS and not row["pods"] else row[name] for row in course.rows]
                axes.plot(seconds, values, color=colour, linestyle=style, label=course.contender)
            axes.set_ylabel(label)
            axes.set_ylim(bottom=0)
            if place > 2:
                axes.set_xlabel("seconds")
            if place == 1:
                figure.legend(loc="lower center", ncols=IN_A_ROW, fontsize=8)
        figure.suptitle(title, x=0.02, ha="left")
        figure.tight_layout(rect=(0, 0.02 + 0.03 * math.ceil(len(courses) / IN_A_ROW), 1, 1))


NODE_PANELS = (
    ("pods", "pods"),
    ("cpu", "requested share of CPU"),
    ("memory", "requested share of memory"),
    ("latency_ms", "latency (ms)"),
)

MOST_LINES = 12
"""Nodes up to which each has a line; more are the rows of a map."""


def draw_nodes(course: Course, names: Sequence[str], path: Path, title: str) -> None:
    """Write a PNG of the nodes of one contender: pods, CPU, memory and latency of each, and the nodes in use."""
    path.parent.mkdir(parents=True, exist_ok=True)
    seconds = [row["seconds"] for row in course.rows]
    with picture(path, (11, 8.5), 110) as figure:
        for place, (name, label) in enumerate(NODE_PANELS, 1):
            axes = figure.add_subplot(3, 2, place)
            axes.set_title(label, loc="left", fontsize=10)
            if len(names) > MOST_LINES:
                _map(axes, _used(course) if name != "latency_ms" else None, course.nodes[name])
                continue
            for index, colour in zip(range(len(names)), cycle(COLOURS), strict=False):
                axes.plot(seconds, [row[index] for row in course.nodes[name]], color=colour, label=names[index])
            axes.set_ylim(bottom=0)
            if place == 1:
                figure.legend(loc="upper right", ncols=min(len(names), 6), fontsize=8)
        for place, name, label in ((5, "nodes_in_use", "nodes in use"), (6, "pods", "pods bound")):
            axes = figure.add_subplot(3, 2, place)
            axes.set_title(label, loc="left", fontsize=10)
            axes.plot(seconds, [row[name] for row in course.rows], color=BLUE)
            axes.set_ylim(bottom=0)
            axes.set_xlabel("seconds")
        figure.suptitle(title, x=0.02, ha="left")
        figure.tight_layout()


def _used(course: Course) -> list[int]:
    """Return the indices of the nodes that had a pod at some look, those that had it first at the top."""
    looks = course.nodes["pods"]
    first = {at: number for number, look in reversed(list(enumerate(looks))) for at, pods in enumerate(look) if pods}
    return sorted(first, key=first.__getitem__) or [0]


def _map(axes: Axes, chosen: list[int] | None, looks: list[list[float]]) -> None:
    """Draw a row for each node, or for the chosen ones, and a column for each look."""
    nodes = [list(node) for node in zip(*looks, strict=True)]
    rows = nodes if chosen is None else [nodes[at] for at in chosen]
    image = axes.imshow(rows, aspect="auto", interpolation="nearest", cmap="viridis")
    axes.set_ylabel("node" if chosen is None else "node with pods")
    axes.set_xlabel("look")
    axes.grid(visible=False)
    axes.figure.colorbar(image, ax=axes)
