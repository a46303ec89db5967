"""Live graphs of a churn test in the browser: one page without scripts that reloads itself."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import cycle

from rlscaler_dev.exceptions import DevClusterError
from rlscaler_dev.exposition import ExpositionServer
from rlscaler_dev.placement.churn import Course
from rlscaler_dev.plot import BLUE, GREEN, MUTED, ORANGE, PURPLE, RED, SKY

RELOAD_SECONDS = 2
WIDTH, HEIGHT = 520, 180
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, MUTED)
OF_NODES = (
    ("pods", "pods of each node"),
    ("latency_ms", "latency of each node (ms)"),
    ("cpu", "requested CPU (share)"),
)
OF_ALL = (("nodes_in_use", "nodes in use"), ("pods", "pods bound"), ("latency_met", "limits met"))
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="{reload}">
<title>{title}</title><style>body{{font:14px sans-serif;margin:1.5em;max-width:1100px}}
div{{display:inline-block;margin:0 1em 1em 0}} svg{{border:1px solid #e4e7eb;display:block}}</style></head>
<body><h1>{title}</h1>{graphs}</body></html>
"""


class Live:
    """The course that is shown."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.course: Course | None = None

    def show(self, course: Course) -> None:
        """Show this course from now on."""
        self.course = course

    def page(self) -> str:
        """Return the page as HTML."""
        course, graphs, title = self.course, "<p>The test has not begun yet.</p>", self.title
        if course is not None and course.rows:
            title = f"{self.title}: {course.contender}, {course.rows[-1]['seconds']:.0f} s"
            lines: dict[str, Sequence[Sequence[float]]] = {}
            for name, label in OF_NODES:
                lines[label] = list(zip(*course.nodes[name], strict=True))
            for name, label in OF_ALL:
                lines[label] = [[row[name] for row in course.rows]]
            graphs = "".join(_graph(label, several) for label, several in lines.items())
        return PAGE.format(reload=RELOAD_SECONDS, title=html.escape(title), graphs=graphs)


def _graph(label: str, lines: Sequence[Sequence[float]]) -> str:
    """Return a graph of lines over looks, from 0 to the highest value."""
    highest = max((value for line in lines for value in line), default=0.0) or 1.0
    drawn = []
    for line, colour in zip(lines, cycle(COLOURS), strict=False):
        last = max(len(line) - 1, 1)
        points = " ".join(
            f"{WIDTH * at / last:.0f},{HEIGHT - (HEIGHT - 4) * value / highest:.1f}" for at, value in enumerate(line)
        )
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    now = sum(line[-1] for line in lines) / len(lines) if lines and lines[0] else 0.0
    text = f"{html.escape(label)}: {now:g}" if len(lines) == 1 else f"{html.escape(label)}, highest {highest:g}"
    return f'<div>{text}<svg width="{WIDTH}" height="{HEIGHT}" role="img">{"".join(drawn)}</svg></div>'


@contextmanager
def served(live: Live, port: int) -> Iterator[str]:
    """Serve the page on loopback while the context lasts; yields its address. Raises DevClusterError."""

    try:
        server = ExpositionServer(live.page, port, "text/html; charset=utf-8")
    except OSError as error:
        raise DevClusterError(f"--port {port}: {error.strerror}; choose another") from error
    with closing(server):
        yield f"http://{server.address}"
