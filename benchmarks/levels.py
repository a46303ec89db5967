"""The same episodes at both levels of the simulator: J, cost, late share and p95 side by side.

python benchmarks/levels.py [--episodes 16] [--seconds 600] [--out FILE]
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from rlscaler_core.models import load_bundled
from rlscaler_dev.benchmark import out_option, write
from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.levels import LEVELS
from rlscaler_rl.simulation.scenario import nominal

PATTERNS = ("ramp", "spike", "periodic", "random")
FIGURES = ("j", "cost", "late_percent", "p95_ms")


def controllers() -> dict[str, Callable[[], Any]]:
    """Default HPA, the forecast rule and the bundled policy: fresh for every run."""
    return {"hpa": Hpa, "rule": lambda: load_bundled("rule"), "ppo": lambda: load_bundled("ppo")}


@click.command()
@click.option("--episodes", default=16, show_default=True, help="Of each pattern.")
@click.option("--seconds", default=600, show_default=True, help="Length of an episode.")
@out_option
def main(episodes: int, seconds: int, out: Path | None) -> None:
    """Print a Markdown table."""
    heads = (
        "pattern",
        "controller",
        *(f"{what} {level}" for what in ("J", "cost", "late %", "p95") for level in LEVELS),
    )
    click.echo(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    rows = []
    for pattern in PATTERNS:
        scenarios = nominal([pattern] * episodes, list(range(episodes)), seconds)
        for name, make in controllers().items():
            row: dict[str, Any] = {"pattern": pattern, "controller": name}
            for level in LEVELS:
                result = run(scenarios, make(), level=level).result
                row[level] = {figure: float(np.mean(getattr(result, figure))) for figure in FIGURES}
            rows.append(row)
            digits = {"j": 2, "cost": 2, "late_percent": 2, "p95_ms": 0}
            cells = [f"{row[level][figure]:.{digits[figure]}f}" for figure in FIGURES for level in LEVELS]
            click.echo(f"| {pattern} | {name} | {' | '.join(cells)} |")
    write(out, rows, indent=1)


if __name__ == "__main__":
    main()
