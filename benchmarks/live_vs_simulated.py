"""How far the simulator is from the real thing: a policy live beside the request-level simulation of the same load.

    python benchmarks/live_vs_simulated.py [--pattern spike] [--seed 1] [--duration 300] [--out FILE.json]

Live: a control plane, the emulated service, Prometheus and Locust (open loop) on this machine, in real time, scaled
by the policy through `KubernetesEnv`. Simulated: the same arrivals second by second, the same policy, action interval
and spread of cold starts, once for each of `--draws` seeds of cold starts and service times. Latency and late requests
of the live run are the client's (Locust), replica-seconds come from Prometheus.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from rlscaler_demo.environment import stage
from rlscaler_loadgen.settings import LoadSettings
from rlscaler_operator.environment import KubernetesEnv
from rlscaler_rl.decision import bundled
from rlscaler_rl.simulation.episode import Run, run
from rlscaler_rl.simulation.scenario import Scenarios, from_rate

mpl.use("Agg")
import matplotlib.pyplot as plt

FIGURES = ("p95_ms", "late_percent", "gpu_replica_seconds", "cpu_replica_seconds", "cost")
TITLES = ("p95, ms", "late, %", "GPU replica-seconds", "CPU replica-seconds", "cost, GPU equivalents")
LEVELS = {"low": 10.0, "peak": 100.0}


def arrivals(load: LoadSettings) -> NDArray[np.float32]:
    """(seconds,) requests that Locust sends in each second."""
    return np.bincount(load.arrival_times().astype(int), minlength=load.duration).astype(np.float32)


def scenarios(load: LoadSettings, config: dict[str, Any], interval: int, draws: int, spans: Any) -> Scenarios:
    """(draws,) episodes of the same arrivals, from an idle service with one replica a pool."""
    rates = np.repeat(load.rate()[None], draws, axis=0)
    return from_rate(
        rates,
        np.arange(draws),
        float(interval),
        pattern=load.pattern,
        arrivals=np.repeat(arrivals(load)[None], draws, axis=0),
        past_rate=np.zeros(draws),
        initial=tuple(config[pool]["start_replicas"] for pool in ("gpu", "cpu")),
        cold_start_low=tuple(span[0] for span in spans),
        cold_start_high=tuple(span[1] for span in spans),
        scrape=config["scrape_interval_seconds"],
    )


def play_live(policy: str, load: LoadSettings, interval: int, spans: Any, folder: Path) -> dict[str, Any]:
    """One episode on this machine, with the load of the machine before and after."""
    actor = bundled.load(policy)
    cold = {"gpu_cold_start": spans[0], "cpu_cold_start": spans[1]}
    with stage(folder, seed=load.seed, name=f"live-{os.getpid()}", **cold) as config:
        changes = {"episode_duration": load.duration, "action_interval": interval}
        env = KubernetesEnv(config | changes, contract=actor.manifest.contract, residual=actor.manifest.residual)
        try:
            _, begun = env.reset(options={"pattern": load.pattern, "seed": load.seed})
            before, rng, truncated, info = os.getloadavg(), np.random.default_rng(load.seed), False, {}
            while not truncated:
                _, _, _, truncated, info = env.hand_over(actor, rng)
            timeline = env.timeline
        finally:
            env.close()
    client = json.loads((Path(begun["folder"]) / "load.json").read_text())
    figures = {name: info[name] for name in FIGURES}
    figures |= {"p95_ms": client["p95_ms"], "late_percent": 100 * client["slo_violation_ratio"]}
    return {
        "figures": figures,
        "prometheus": {name: info[name] for name in ("p95_ms", "late_percent", "requests", "lost_ticks")},
        "requests": client["requests"],
        "dispatch_lag_p99_ms": client["dispatch_lag_p99_ms"],
        "load_average": {"before": before[0], "after": os.getloadavg()[0]},
        "timeline": timeline,
        "environment": config,
    }


def compare(live: dict[str, Any], simulated: Run) -> dict[str, dict[str, float]]:
    """By figure: live, the simulation's mean and spread over its draws, and the difference."""
    rows = {}
    for name in FIGURES:
        values = np.asarray(getattr(simulated.result, name), dtype=np.float64)
        found, mean = float(live["figures"][name]), float(values.mean())
        rows[name] = {
            "live": found,
            "simulated": mean,
            "lowest": float(values.min()),
            "highest": float(values.max()),
            "difference": found - mean,
            "difference_percent": 100 * (found - mean) / mean if mean else float("nan"),
            "draws_below_live": int((values < found).sum()),
        }
    return rows


def draw(path: Path, live: dict[str, Any], simulated: Run, load: LoadSettings) -> None:
    """Load, replicas and latency of both over time."""
    figure, axes = plt.subplots(3, 1, figsize=(8, 7), sharex=True, layout="constrained")
    seconds = np.arange(load.duration)
    seen = live["timeline"]
    ticks = [tick["second"] for tick in seen]
    axes[0].plot(seconds, load.rate(), color="0.6", label="asked for")
    axes[0].plot(ticks, [tick["arrival_rate"] for tick in seen], color="C0", label="live, as sensed")
    axes[0].set_ylabel("requests/s")
    ready = simulated.timeline["ready"]
    for pool, (name, color) in enumerate((("GPU", "C2"), ("CPU", "C1"))):
        low, high = ready[:, :, pool].min(axis=0), ready[:, :, pool].max(axis=0)
        axes[1].fill_between(seconds, low, high, color=color, alpha=0.25, step="post", label=f"{name} simulated")
        axes[1].step(ticks, [tick["ready_replicas"][pool] for tick in seen], color=color, where="post", label=name)
    axes[1].set_ylabel("ready replicas")
    late = 100 * simulated.timeline["late_share"]
    axes[2].plot(seconds, late.mean(axis=0), color="0.4", label="simulated, mean of the draws")
    axes[2].step(live["late_seconds"], live["late_shares"], color="C3", where="post", label="live, by the client")
    axes[2].set(ylabel="late, %", xlabel="seconds")
    for axis in axes:
        axis.legend(loc="upper right", fontsize=8, ncols=2)
    figure.suptitle(f"{load.pattern}, seed {load.seed}: live and simulated", fontsize=11)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def late_by_second(folder: Path) -> tuple[list[float], list[float]]:
    """% of the requests ended in each 5 s that were late or failed, by the client."""
    rows = np.genfromtxt(folder / "load.csv", delimiter=",", names=True)
    blocks = (rows["time"] // 5).astype(int)
    ended = np.bincount(blocks, rows["ok"] + rows["late"] + rows["failed"])
    missed = np.bincount(blocks, rows["late"] + rows["failed"])
    return (5.0 * np.arange(len(ended))).tolist(), (100 * missed / np.maximum(ended, 1)).tolist()


@click.command()
@click.option("--pattern", "patterns", multiple=True, default=("spike",), show_default=True, help="Repeatable.")
@click.option("--policy", type=click.Choice(bundled.NAMES), default="ppo", show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--duration", default=300, show_default=True, help="Seconds of load.")
@click.option("--interval", default=30, show_default=True, help="Action interval, seconds.")
@click.option("--draws", default=64, show_default=True, help="Simulated episodes.")
@click.option("--gpu-cold-start", nargs=2, type=float, default=(35.0, 55.0), show_default=True)
@click.option("--cpu-cold-start", nargs=2, type=float, default=(5.0, 11.0), show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="JSON file; pictures lie beside it.")
def main(
    patterns: tuple[str, ...],
    policy: str,
    seed: int,
    duration: int,
    interval: int,
    draws: int,
    gpu_cold_start: tuple[float, float],
    cpu_cold_start: tuple[float, float],
    out: Path | None,
) -> None:
    """Play each pattern live and simulated and state the difference."""
    console, spans = Console(width=110), (gpu_cold_start, cpu_cold_start)
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    made = []
    for pattern in patterns:
        load = LoadSettings(pattern=pattern, duration=duration, seed=seed, **LEVELS)  # type: ignore[arg-type]
        with tempfile.TemporaryDirectory(prefix="rlscaler-live-") as folder:
            live = play_live(policy, load, interval, spans, Path(folder))
            live["late_seconds"], live["late_shares"] = late_by_second(Path(folder) / "load" / "episode_001")
        began = time.monotonic()
        played = scenarios(load, live["environment"], interval, draws, spans)
        simulated = run(played, bundled.load(policy), level="request", timeline=True)
        rows = compare(live, simulated)
        average = "{before:.1f} before, {after:.1f} after".format(**live["load_average"])
        lag = f"Locust's own lag p99 {live['dispatch_lag_p99_ms']:.0f} ms"
        table = Table(
            title=f"{pattern}, {policy}, seed {seed}, {duration} s ({machine}; load average {average}; {lag})"
        )
        for heading in ("", "live", f"simulated, mean of {draws}", "lowest-highest", "difference", "%"):
            table.add_column(heading, justify="right")
        for name, title in zip(FIGURES, TITLES, strict=True):
            row = rows[name]
            span = f"{row['lowest']:.5g}-{row['highest']:.5g}"
            values = (f"{row['live']:.5g}", f"{row['simulated']:.5g}", span, f"{row['difference']:+.4g}")
            table.add_row(title, *values, f"{row['difference_percent']:+.1f}")
        console.print(table)
        result = {"pattern": pattern, "policy": policy, "seed": seed, "duration_s": duration, "interval_s": interval}
        result |= {"draws": draws, "machine": machine, "rows": rows, "simulation_seconds": time.monotonic() - began}
        made.append(result | {"live": {key: value for key, value in live.items() if key != "environment"}})
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
            draw(out.with_name(f"{out.stem}-{pattern}.png"), live, simulated, load)


if __name__ == "__main__":
    main()
