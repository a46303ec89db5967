"""How good the upper forecast is, and where its constants come from.

    python benchmarks/forecast.py [--runs 1500] [--trace FILE ...] [--fit] [--out FILE]

For every load: the pinball loss at the 90 % quantile (lower is better, relative to the load's own mean rate) and how
often the load went above the forecast (10 % is ideal), beside two forecasts without constants: the rate as it is now
and the peak of the last three minutes. `--fit` looks for the constants again (needs the `train` extra).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from rlscaler_core.decision import forecast
from rlscaler_core.decision.types import RATE_HISTORY, Float
from rlscaler_dev.benchmark import out_option, write
from rlscaler_loadgen.patterns import rates
from rlscaler_loadgen.traces import Trace, read_trace

QUANTILE = 0.9
LENGTH_SECONDS = 900
HORIZON_SECONDS = (16.0, 110.0)
"""Two cold starts, of a CPU pod to a slow GPU pod."""

PATTERNS = ("ramp", "spike", "periodic", "random")
TRAINING_PART = 0.6
"""Share of a trace that is used; the rest is kept for tests."""


class Cases(NamedTuple):
    """Histories as a scraper sees them (N, RATE_HISTORY), and the highest rate that followed (N,)."""

    time: Float
    value: Float
    now: Float
    horizon: Float
    highest: Float
    scale: Float


def cases(name: str, runs: int, seed: int, trace: Trace | None = None) -> Cases:
    """One moment of each of `runs` runs: Poisson arrivals, a rate window of 6-30 s, a lag of 2-30 s, a tick of 5 s."""
    rng = np.random.default_rng(seed)
    options: dict[str, Any] = {} if trace is None else {"trace": trace, "phase": rng.uniform(0, TRAINING_PART, runs)}
    rate = rates(name, LENGTH_SECONDS, rng, runs, scale_range=(0.2, 1.5), **options)
    arrived = np.pad(rng.poisson(rate).cumsum(axis=1), ((0, 0), (1, 0))).astype(float)
    horizon = rng.uniform(*HORIZON_SECONDS, runs)
    now = rng.integers(40, LENGTH_SECONDS - int(HORIZON_SECONDS[1]) - 1, runs)
    window, lag = rng.integers(6, 31, (runs, 1)), rng.integers(2, 31, (runs, 1))
    taken = now[:, None] - lag + 5 * np.arange(1 - RATE_HISTORY, 1)
    row = np.arange(runs)[:, None]
    seen = np.clip(taken, 0, None), np.clip(taken - window, 0, None)
    measured = (arrived[row, seen[0]] - arrived[row, seen[1]]) / window
    there = taken >= window
    smooth = np.pad(rate.cumsum(axis=1), ((0, 0), (1, 0)))
    smooth = (smooth[:, 5:] - smooth[:, :-5]) / 5
    second = np.arange(smooth.shape[1])
    ahead = (second >= now[:, None] + (horizon[:, None] / 2).astype(int)) & (second <= (now + horizon)[:, None])
    time, value = np.where(there, taken, np.nan), np.where(there, measured, np.nan)
    kept = there[:, -1]
    scale = np.maximum(np.nanmean(value[kept], axis=1), 1.0)
    highest = np.where(ahead, smooth, 0.0).max(axis=1)
    return Cases(time[kept], value[kept], now[kept].astype(float), horizon[kept], highest[kept], scale)


def every(runs: int, traces: tuple[Path, ...], seed: int) -> dict[str, Cases]:
    """The patterns, the sample trace and the traces of the command line."""
    loads = {name: cases(name, runs, seed) for name in (*PATTERNS, "trace")}
    return loads | {path.name.split(".")[0]: cases("trace", runs, seed, read_trace(path)) for path in traces}


def pinball(case: Cases, upper: Float) -> float:
    miss = (case.highest - upper) / case.scale
    return float(np.maximum(QUANTILE * miss, (QUANTILE - 1) * miss).mean())


def report(case: Cases) -> dict[str, float]:
    upper = forecast.upper_forecast(case.time, case.value, case.now, case.horizon)
    recent = case.now[:, None] - case.time <= forecast.MEMORY_LIMIT_SECONDS
    peak = np.where(recent, case.value, 0.0).max(axis=1)
    return {
        "loss": pinball(case, upper),
        "exceeded": float((case.highest > upper).mean()),
        "loss_now": pinball(case, case.value[:, -1]),
        "loss_peak": pinball(case, peak),
    }


def fit(loads: dict[str, Cases]) -> dict[str, float]:
    """The three gains with the least mean, over the loads, of the loss relative to that of the peak forecast."""
    from scipy.optimize import minimize

    names = ("trend", "residual", "peak")
    peaks = {name: report(case)["loss_peak"] for name, case in loads.items()}

    def loss(values: Float) -> float:
        gains = forecast.Gains(*values)
        losses = {
            name: pinball(case, forecast.upper_forecast(case.time, case.value, case.now, case.horizon, gains))
            for name, case in loads.items()
        }
        return float(np.mean([losses[name] / peaks[name] for name in loads]))

    shipped = np.array(forecast.GAINS[:3])
    found = minimize(loss, shipped, method="Nelder-Mead", bounds=[(0, 5)] * 3, options={"maxiter": 200})
    return dict(zip(names, found.x.round(2).tolist(), strict=True)) | {
        "gain": round(float(1 - found.fun / loss(shipped)), 3)
    }


@click.command()
@click.option("--runs", default=1500, show_default=True, help="Moments per load.")
@click.option("--trace", "traces", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--fit", "refit", is_flag=True, help="Look for the three gains again.")
@out_option
def main(runs: int, traces: tuple[Path, ...], refit: bool, out: Path | None) -> None:
    """Loss and coverage of the upper forecast on every load."""
    figures: dict[str, Any] = {name: report(case) for name, case in every(runs, traces, seed=2).items()}
    click.echo(f"{'load':28}{'loss':>8}{'exceeded':>10}{'now':>8}{'peak':>8}")
    for name, row in figures.items():
        click.echo(f"{name:28}{row['loss']:8.3f}{row['exceeded']:10.2f}{row['loss_now']:8.3f}{row['loss_peak']:8.3f}")
    if refit:
        figures["fit"] = fit(every(runs, traces, seed=1))
        click.echo(f"fitted: {figures['fit']}")
    write(out, figures)


if __name__ == "__main__":
    main()
