"""Picture of a study: J of each variant with its interval, and in a study of training the returns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlscaler_rl.results.figures import COLOURS, figure, headline, means_with_bars, save
from rlscaler_rl.tenants.studies import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BY = {"weighted max-min": COLOURS["rule_tuned"], "all agents": COLOURS["policy"]}
"""Colours of the contenders."""

OFFSET = 0.12
"""Rows by which the contenders of one variant are drawn apart."""


def draw(study: Study, path: Path) -> None:
    """Write the picture of a study as a PNG file."""
    variants = list(dict.fromkeys(line.variant for line in study.lines))
    learns = bool(study.returns)
    picture = figure(10.5 if learns else 7.0, 1.4 + 0.42 * len(variants) + (1.2 if learns else 0.0))
    axes = picture.subplots(1, 2 if learns else 1, squeeze=False)[0]
    _levels(axes[0], study, variants)
    if learns:
        _returns(axes[1], study)
    trainings = f"{len(study.seeds)} seed{'' if len(study.seeds) == 1 else 's'} of {study.epochs} epochs"
    headline(picture, f"{study.name}: {trainings}", 11)
    save(picture, path)


def _levels(axes: Axes, study: Study, variants: list[str]) -> None:
    for contender, colour in BY.items():
        lines = [line for line in study.lines if line.contender == contender]
        shift = OFFSET if contender == "all agents" else -OFFSET
        place = [variants.index(line.variant) + shift for line in lines]
        means_with_bars(axes, place, [line.j for line in lines], horizontal=True, color=colour, label=contender)
    axes.set_yticks(range(len(variants)), variants)
    axes.invert_yaxis()
    axes.set_xlabel("J of a tenant (lower is better)")
    axes.legend(loc="best")


def _returns(axes: Axes, study: Study) -> None:
    for variant, returns in study.returns.items():
        axes.plot(range(1, len(returns) + 1), returns, label=variant, linewidth=1.4)
    axes.set_xlabel("epoch")
    axes.set_ylabel("mean reward of a pool, exploring")
    axes.legend(loc="best", fontsize=8)
