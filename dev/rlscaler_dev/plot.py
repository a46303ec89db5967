"""Style of all pictures: one set of colours, one style, and drawing without a display."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#1f2933", "#616e7c", "#e4e7eb"
BLUE, ORANGE, GREEN, RED, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
"""Okabe and Ito's, which stay apart for colour-blind readers."""

LOOK: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
}
"""Settings of matplotlib that all pictures share; sizes are each picture's own."""


@contextmanager
def picture(
    path: Path, inches: tuple[float, float], dpi: float, style: Mapping[str, Any] = LOOK, **options: Any
) -> Iterator[Figure]:
    """A figure that is written to `path` as a PNG when the context ends; `options` are those of `savefig`."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    with matplotlib.rc_context(dict(style)):
        figure = pyplot.figure(figsize=inches)
        try:
            yield figure
            figure.savefig(path, dpi=dpi, **options)
        finally:
            pyplot.close(figure)
