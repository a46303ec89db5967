"""How far the simulator is from the real thing: a policy live beside the request-level simulation of the same load.

    python benchmarks/live_vs_simulated.py [--pattern spike]... [--repeats 1] [--duration 300] [--out FILE.json]
    python benchmarks/live_vs_simulated.py --recorded FILE.json [--out FILE.json]

Live: a control plane, the emulated service, Prometheus and Locust (open loop) on this machine, in real time, scaled
by the policy through `KubernetesEnv`. Simulated: the same arrivals second by second, the same policy, action interval
and spread of cold starts, in `--draws` episodes that differ in what a live run does not choose either: cold starts,
service times, and where in Prometheus' scrape interval an episode begins. Latency and late requests of a live run are
the client's (Locust), replica-seconds come from Prometheus. `--recorded` simulates again beside live runs of before.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from rlscaler_core.decision.rule import rule_of
from rlscaler_core.models import BUNDLED_POLICIES, load_bundled
from rlscaler_dev import benchmark
from rlscaler_dev.demo.testbed import local_testbed
from rlscaler_dev.plot import picture
from rlscaler_live.environment import KubernetesEnv
from rlscaler_loadgen.settings import LoadSettings
from rlscaler_rl.simulation.episode import Run, run
from rlscaler_rl.simulation.scenario import Scenarios, from_rate

FIGURES = ("p95_ms", "late_percent", "gpu_replica_seconds", "cpu_replica_seconds", "cost")
TITLES = ("p95, ms", "late, %", "GPU replica-seconds", "CPU replica-seconds", "cost, GPU equivalents")
LEVELS = {"low": 10.0, "peak": 100.0}


def arrivals(load: LoadSettings) -> NDArray[np.float32]:
    """(seconds,) requests that Locust sends in each second."""
    return np.bincount(load.arrival_times().astype(int), minlength=load.duration).astype(np.float32)


def scenarios(load: LoadSettings, live: dict[str, Any], draws: int) -> Scenarios:
    """(draws,) episodes of the same arrivals, from an idle service with the same first replicas."""
    spans, scrape = live["cold_start_seconds"], live["scrape_interval_seconds"]
    return from_rate(
        np.repeat(load.rate()[None], draws, axis=0),
        np.arange(draws),
        float(live["interval_s"]),
        pattern=load.pattern,
        arrivals=np.repeat(arrivals(load)[None], draws, axis=0),
        past_rate=np.zeros(draws),
        initial=tuple(live["start_replicas"]),
        cold_start_low=tuple(span[0] for span in spans),
        cold_start_high=tuple(span[1] for span in spans),
        scrape=scrape,
        phase=np.arange(draws) % int(scrape),
    )


Keep = Callable[[list[dict[str, Any]]], None]


def play_live(
    policy: str, loads: list[LoadSettings], interval: int, spans: Any, folder: Path, keep: Keep
) -> list[dict[str, Any]]:
    """Every load once on this machine, with the load of the machine before and after; `keep` gets what there is."""
    actor, made = load_bundled(policy), []
    cold = {"gpu_cold_start": spans[0], "cpu_cold_start": spans[1]}
    with local_testbed(folder, seed=loads[0].seed, name=f"live-{os.getpid()}", **cold) as config:
        changes = {"episode_duration": loads[0].duration, "action_interval": interval}
        env = KubernetesEnv(config | changes, contract=actor.manifest.contract, rule=rule_of(actor.manifest))
        try:
            for load in loads:
                made.append(episode(env, actor, load))
                made[-1] |= {
                    "policy": policy,
                    "digest": actor.manifest.digest,
                    "interval_s": interval,
                    "cold_start_seconds": spans,
                    "start_replicas": [config[pool]["start_replicas"] for pool in ("gpu", "cpu")],
                    "scrape_interval_seconds": config["scrape_interval_seconds"],
                }
                keep(made)
        finally:
            env.close()
    return made


def episode(env: KubernetesEnv, actor: Any, load: LoadSettings) -> dict[str, Any]:
    """One live episode."""
    _, begun = env.reset(options={"pattern": load.pattern, "seed": load.seed})
    before, rng, truncated, info = os.getloadavg(), np.random.default_rng(load.seed), False, {}
    while not truncated:
        _, _, _, truncated, info = env.hand_over(actor, rng)
    folder = Path(begun["folder"])
    client = json.loads((folder / "load.json").read_text())
    figures = {name: info[name] for name in FIGURES}
    figures |= {"p95_ms": client["p95_ms"], "late_percent": 100 * client["slo_violation_ratio"]}
    seconds, shares = late_by_second(folder)
    return {
        "pattern": load.pattern,
        "seed": load.seed,
        "duration_s": load.duration,
        "figures": figures,
        "prometheus": {name: info[name] for name in ("p95_ms", "late_percent", "requests", "lost_ticks")},
        "requests": client["requests"],
        "dispatch_lag_p99_ms": client["dispatch_lag_p99_ms"],
        "load_average": {"before": before[0], "after": os.getloadavg()[0]},
        "timeline": env.timeline,
        "late_seconds": seconds,
        "late_shares": shares,
    }


def compare(lives: list[dict[str, Any]], simulated: Run) -> dict[str, dict[str, Any]]:
    """For each figure: every live run, their mean, the simulated draws, and how far the live mean is from their median.

    A spike makes two kinds of episodes, with and without a late burst, so a mean over draws describes none of them.
    """
    rows = {}
    for name in FIGURES:
        values = np.asarray(getattr(simulated.result, name), dtype=np.float64)
        found = [float(live["figures"][name]) for live in lives]
        mean, median = float(np.mean(found)), float(np.median(values))
        low, high = (float(value) for value in np.percentile(values, (5, 95)))
        rows[name] = {
            "live": found,
            "simulated_median": median,
            "simulated_mean": float(values.mean()),
            "simulated_5_percent": low,
            "simulated_95_percent": high,
            "difference": mean - median,
            "difference_percent": 100 * (mean - median) / median if median else float("nan"),
            "live_within": sum(low <= value <= high for value in found),
        }
    return rows


def draw(path: Path, lives: list[dict[str, Any]], simulated: Run, load: LoadSettings) -> None:
    """Load, replicas and late requests of both over time."""
    with picture(path, (9.5, 7), 110) as figure:
        figure.set_layout_engine("constrained")
        axes = figure.subplots(3, 1, sharex=True)
        seconds = np.arange(load.duration)
        ready, late = simulated.timeline["ready"], 100 * simulated.timeline["late_share"]
        axes[0].plot(seconds, load.rate(), color="0.6", label="asked for")
        for pool, (name, color) in enumerate((("GPU", "C2"), ("CPU", "C1"))):
            low, high = np.percentile(ready[:, :, pool], (5, 95), axis=0)
            label = f"{name}, 90 % of the simulated"
            axes[1].fill_between(seconds, low, high, color=color, alpha=0.25, step="post", label=label)
        axes[2].plot(seconds, late.mean(axis=0), color="0.4", label="simulated, mean of the draws")
        for number, live in enumerate(lives):
            ticks, style = [tick["second"] for tick in live["timeline"]], ("-", "--", ":", "-.")[number % 4]
            sensed = [tick["arrival_rate"] for tick in live["timeline"]]
            axes[0].plot(ticks, sensed, style, color="C0", label=f"live {number + 1}, as sensed")
            for pool, (name, color) in enumerate((("GPU", "C2"), ("CPU", "C1"))):
                held = [tick["ready_replicas"][pool] for tick in live["timeline"]]
                axes[1].step(ticks, held, style, color=color, where="post", label=f"{name}, live {number + 1}")
            label = f"live {number + 1}, by the client"
            axes[2].step(live["late_seconds"], live["late_shares"], style, color="C3", where="post", label=label)
        for axis, label in zip(axes, ("requests/s", "ready replicas", "late, %"), strict=True):
            axis.set_ylabel(label)
            axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7, frameon=False)
        axes[2].set_xlabel("seconds")
        figure.suptitle(f"{load.pattern}, seed {load.seed}: live and simulated", fontsize=11)


def late_by_second(folder: Path) -> tuple[list[float], list[float]]:
    """% of the requests ended in each 5 s that were late or failed, by the client."""
    rows = np.genfromtxt(folder / "load.csv", delimiter=",", names=True)
    blocks = (rows["time"] // 5).astype(int)
    ended = np.bincount(blocks, rows["ok"] + rows["late"] + rows["failed"])
    missed = np.bincount(blocks, rows["late"] + rows["failed"])
    return (5.0 * np.arange(len(ended))).tolist(), (100 * missed / np.maximum(ended, 1)).tolist()


def settings(pattern: str, duration: int, seed: int) -> LoadSettings:
    return LoadSettings(pattern=pattern, duration=duration, seed=seed, **LEVELS)  # type: ignore[arg-type]


def show(console: Console, rows: dict[str, dict[str, Any]], lives: list[dict[str, Any]], draws: int) -> None:
    first = lives[0]
    averages = ", ".join(f"{live['load_average']['after']:.1f}" for live in lives)
    lags = ", ".join(f"{live['dispatch_lag_p99_ms']:.0f}" for live in lives)
    console.print(
        f"\n[bold]{first['pattern']}[/], {first['policy']}, seed {first['seed']}, {first['duration_s']} s, "
        f"{first['requests']} requests; load average {averages}; Locust's own lag p99 {lags} ms"
    )
    table = Table()
    for heading in ("", "live", f"simulated, median of {draws}", "5-95 %", "difference", "%", "live within"):
        table.add_column(heading, justify="right")
    for name, title in zip(FIGURES, TITLES, strict=True):
        row = rows[name]
        span = f"{row['simulated_5_percent']:.5g}-{row['simulated_95_percent']:.5g}"
        found = ", ".join(f"{value:.5g}" for value in row["live"])
        difference = f"{row['difference']:+.4g}", f"{row['difference_percent']:+.1f}"
        within = f"{row['live_within']} of {len(row['live'])}"
        table.add_row(title, found, f"{row['simulated_median']:.5g}", span, *difference, within)
    console.print(table)


def by_pattern(lives: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    names = dict.fromkeys(live["pattern"] for live in lives)
    return {name: [live for live in lives if live["pattern"] == name] for name in names}


def write(
    out: Path | None, lives: dict[str, list[dict[str, Any]]], found: dict[str, dict[str, Any]] | None = None
) -> None:
    """What there is so far: a run of an hour must not be lost to its last minute."""
    rows = [{"pattern": name, **(found or {}).get(name, {}), "live": here} for name, here in lives.items()]
    benchmark.write(out, {"machine": benchmark.machine(), "patterns": rows}, indent=None)


@click.command()
@click.option("--pattern", "patterns", multiple=True, default=("spike",), show_default=True, help="Repeatable.")
@click.option("--policy", type=click.Choice(BUNDLED_POLICIES), default="ppo", show_default=True)
@click.option("--seed", default=1, show_default=True, help="Of the load: every run meets the same arrivals.")
@click.option("--duration", default=300, show_default=True, help="Seconds of load.")
@click.option("--interval", default=30, show_default=True, help="Action interval, seconds.")
@click.option("--repeats", default=1, show_default=True, help="Live runs of each pattern.")
@click.option("--draws", default=200, show_default=True, help="Simulated episodes.")
@click.option("--gpu-cold-start", nargs=2, type=float, default=(35.0, 55.0), show_default=True)
@click.option("--cpu-cold-start", nargs=2, type=float, default=(5.0, 11.0), show_default=True)
@click.option("--recorded", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Live runs of before.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="JSON file; pictures lie beside it.")
def main(
    patterns: tuple[str, ...],
    policy: str,
    seed: int,
    duration: int,
    interval: int,
    repeats: int,
    draws: int,
    gpu_cold_start: tuple[float, float],
    cpu_cold_start: tuple[float, float],
    recorded: Path | None,
    out: Path | None,
) -> None:
    """Play each pattern live and simulated and state the difference."""
    console = Console(width=110)
    if recorded is not None:
        lives = [live for row in json.loads(recorded.read_text())["patterns"] for live in row["live"]]
    else:
        loads = [settings(pattern, duration, seed) for pattern in patterns for _ in range(repeats)]
        with tempfile.TemporaryDirectory(prefix="rlscaler-live-") as folder:
            spans = gpu_cold_start, cpu_cold_start
            lives = play_live(policy, loads, interval, spans, Path(folder), lambda found: write(out, by_pattern(found)))
    found: dict[str, dict[str, Any]] = {}
    for pattern, here in by_pattern(lives).items():
        actor, load = load_bundled(here[0]["policy"]), settings(pattern, here[0]["duration_s"], here[0]["seed"])
        if actor.manifest.digest != here[0]["digest"]:
            raise click.ClickException(
                f"{recorded}: was played by another {here[0]['policy']} than the one bundled now"
            )
        simulated = run(scenarios(load, here[0], draws), actor, level="request", timeline=1)
        rows = compare(here, simulated)
        show(console, rows, here, draws)
        found[pattern] = {"draws": draws, "rows": rows}
        if out is not None:
            write(out, by_pattern(lives), found)
            draw(out.with_name(f"{out.stem}-{pattern}.png"), here, simulated, load)


if __name__ == "__main__":
    main()
