"""The rule for consumers of a stream beside KEDA with searched settings, hindsight and networks, in the stream level.

    python benchmarks/stream_rule.py [--seeds 8] [--protocol range]... [--cold-start 5 11] [--model FOLDER]...
                                     [--out FILE.json]

Loads of ten minutes between 60 and 600 messages/s on 12 partitions, of consumers that process 100 a second: a ramp, a
spike, a sinusoid and a random walk, each with levels and moments of its own for every seed, and pieces of two recorded
loads. A planner who knows every message is played beside them, and the networks of `--model`, seeds of one training.
The gate: a network may be the default where it is ahead of the rule in J by an interval off zero, in the mean of the
protocols. For each protocol the `lagThreshold` and the stabilization window of KEDA are searched on loads of other
seeds, and on the training part of the recorded ones: the fewest consumer-seconds with at most 5 % of the messages
late. All are then judged on loads that none has seen. Intervals are paired, 95 %, over the seeds of a load, or over
the pieces of a recorded one; loads count alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.types import Float
from rlscaler_core.models import load_bundled
from rlscaler_dev.benchmark import machine, out_option, write
from rlscaler_rl.baselines.hpa import KedaKafkaLag
from rlscaler_rl.evaluation.gate import judge
from rlscaler_rl.evaluation.models import load_for_streams
from rlscaler_rl.evaluation.rows import as_difference
from rlscaler_rl.evaluation.statistics import Design, Interval, blocks_of, weights
from rlscaler_rl.evaluation.streams.search import searched
from rlscaler_rl.planning.consumers import hindsight
from rlscaler_rl.simulation.streams.episode import StreamResult, least_consumer_seconds, run
from rlscaler_rl.simulation.streams.groups import NOMINAL, Groups, groups
from rlscaler_rl.simulation.streams.protocols import NAMES
from rlscaler_rl.training.stream_loads import SHAPES
from rlscaler_rl.workloads import Part
from rlscaler_rl.workloads.library import recorded_part
from rlscaler_rl.workloads.trace_loads import pieces_of

SECONDS = 600
LOW, PEAK = 60.0, 600.0
RECORDED = ("azure_conv", "servegen_small")
FIGURES = ("p95_seconds", "late_percent", "consumer_seconds", "performance_cost", "rebalances_per_hour", "j")
INTERVAL_SECONDS = 15.0
NEVER_SECONDS = 300.0
"""What a lag that does not end counts as: as long as an episode is played after its load."""


def loads(part: Part, seeds: int) -> dict[str, Float]:
    """(seeds, SECONDS) messages/s of each load; parts have no seed and no piece in common."""
    found = {
        shape.__name__: np.stack(
            [
                shape(np.random.default_rng([seed, list(Part).index(part), 11]), SECONDS, LOW, PEAK)
                for seed in range(seeds)
            ]
        )
        for shape in SHAPES
    }
    for name in RECORDED:
        cut = [piece[begin : begin + SECONDS] for piece in pieces_of(recorded_part(name, part), part)
               for begin in range(0, len(piece) - SECONDS + 1, SECONDS)]  # fmt: skip
        order = np.random.default_rng([len(cut), 11]).permutation(len(cut))
        found[name] = PEAK * np.stack([cut[order[seed % len(cut)]] for seed in range(seeds)]).astype(np.float64)
    return found


def groups_of(found: dict[str, Float], protocol: str, cold_start: tuple[float, float]) -> Groups:
    """A group for each row of each load; it begins with as many consumers as its first second needs."""
    rates = np.concatenate(list(found.values()))
    seeds = np.concatenate([np.arange(len(rows)) for rows in found.values()])
    first = np.clip(np.ceil(rates[:, 0] / NOMINAL["rate"]), 1, NOMINAL["max_replicas"]).astype(np.int32)
    low, high = cold_start
    return groups(rates, seeds, protocol=protocol, initial=first, cold_start_low=low, cold_start_high=high)


def table_of(result: StreamResult, found: dict[str, Float]) -> dict[str, Float]:
    """(loads, seeds) of each figure."""
    shape = len(found), -1
    return {name: np.minimum(getattr(result, name), _most(name)).reshape(shape) for name in FIGURES}


def _most(name: str) -> float:
    return NEVER_SECONDS if name == "p95_seconds" else np.inf


def interval(difference: Float, found: dict[str, Float]) -> Interval:
    """Give the interval of the mean of a difference (loads, seeds), whose seeds are resampled within each load."""
    resampled = []
    for number, (name, rates) in enumerate(found.items()):
        design = Design(1, len(rates), blocks_of(rates) if name in RECORDED else None)
        resampled.append(weights(design, number) @ difference[number])
    return Interval.of(float(difference.mean()), np.mean(resampled, axis=0))


def judged(
    protocol: str, seeds: int, cold_start: tuple[float, float], networks: Mapping[str, ActorLike]
) -> tuple[dict[str, Any], dict[str, Float]]:
    """Search on the training part, and play all on the test part; J (loads, seeds) by name comes with the rest."""
    keda = searched(groups_of(loads(Part.TRAIN, seeds), protocol, cold_start))
    found = loads(Part.TEST, seeds)
    made = groups_of(found, protocol, cold_start)
    contenders = {
        "rule": load_bundled("rule"),
        **networks,
        "KEDA, searched": keda.contender(),
        "KEDA, default": KedaKafkaLag(),
    }
    tables = {
        name: table_of(run(made, one, interval_seconds=INTERVAL_SECONDS).result, found)
        for name, one in contenders.items()
    }
    tables["hindsight"] = table_of(hindsight(made), found)
    rule, other = tables["rule"], tables["KEDA, searched"]
    seconds = 100 * (rule["consumer_seconds"] / other["consumer_seconds"] - 1)
    worth = 100 * (rule["performance_cost"] / other["performance_cost"] - 1)
    row = {
        "protocol": protocol,
        "keda": keda._asdict(),
        "least": float(least_consumer_seconds(made).mean()),
        "means": {name: {figure: float(one[figure].mean()) for figure in FIGURES} for name, one in tables.items()},
        "loads": {
            name: {
                load: {figure: float(one[figure][number].mean()) for figure in FIGURES}
                for number, load in enumerate(found)
            }
            for name, one in tables.items()
        },
        "p95_difference": asdict(interval(rule["p95_seconds"] - other["p95_seconds"], found)),
        "consumer_seconds_percent": asdict(interval(seconds, found)),
        "performance_cost_percent": asdict(interval(worth, found)),
        "j_beside_the_rule": {
            name: asdict(interval(one["j"] - rule["j"], found)) for name, one in tables.items() if name != "rule"
        },
    }
    return row, {name: one["j"] for name, one in tables.items()}


def gated(j: Sequence[Mapping[str, Float]], names: Sequence[str], seeds: int) -> dict[str, Any]:
    """J of the networks, and of hindsight, less that of the rule, in the mean of the protocols, and the gate's word.

    `j` has (loads, seeds) by name, one for each protocol; loads and pieces are the same in each.
    """
    found = loads(Part.TEST, seeds)
    rule = np.mean([one["rule"] for one in j], axis=0)

    def beside(of: Sequence[str]) -> Interval:
        return interval(np.mean([[one[name] for name in of] for one in j], axis=(0, 1)) - rule, found)

    whole = beside(names)
    difference = as_difference(whole, float(rule.mean()))
    status, _ = judge([("the rule", difference)], smooth=False)
    return {
        "each": {name: asdict(beside([name])) for name in names},
        "all": asdict(whole),
        "hindsight": asdict(beside(["hindsight"])),
        "rule": float(rule.mean()),
        "status": status,
        "percent": difference.shown(),
    }


def shown(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="means over loads and seeds; KEDA's lagThreshold and window as searched", title_justify="left")
    for heading in (
        "protocol",
        "autoscaler",
        "p95 lag s",
        "late %",
        "consumer-seconds",
        "in time a second",
        "rebalances an hour",
        "J",
    ):
        table.add_column(heading, justify="left" if heading in ("protocol", "autoscaler") else "right")
    for row in rows:
        keda = row["keda"]
        for name, means in row["means"].items():
            label = (
                f"{name} ({keda['lag_threshold']}, {keda['down_seconds']:g} s)" if name == "KEDA, searched" else name
            )
            cells = [
                format(means[figure], form)
                for figure, form in zip(FIGURES, (".1f", ".1f", ",.0f", ".1f", ".0f", ".2f"), strict=True)
            ]
            table.add_row(row["protocol"], label, *cells)
    return table


@click.command()
@click.option("--protocol", "protocols", type=click.Choice(NAMES), multiple=True, default=NAMES, show_default=True)
@click.option("--seeds", type=click.IntRange(2), default=8, show_default=True, help="Groups of each load.")
@click.option(
    "--cold-start", type=(float, float), default=(5.0, 11.0), show_default=True, help="Seconds, drawn between."
)
@click.option(
    "--model", "models", multiple=True, help="`streams`, the bundled network, or one of `rlscaler streams train`."
)
@out_option
def main(
    protocols: tuple[str, ...], seeds: int, cold_start: tuple[float, float], models: tuple[str, ...], out: Path | None
) -> None:
    """Print lag, consumer-seconds and rebalances of all, and the intervals of their differences."""
    networks = {f"network {Path(model).name}": load_for_streams(model).actor for model in models}
    rows, j = zip(*(judged(protocol, seeds, cold_start, networks) for protocol in protocols), strict=True)
    console = Console(width=120, highlight=False)
    console.print(shown(rows))
    for row in rows:
        p95, seconds, worth = (
            row[name] for name in ("p95_difference", "consumer_seconds_percent", "performance_cost_percent")
        )
        console.print(
            f"{row['protocol']}: rule less searched KEDA: p95 lag {p95['mean']:+.2f} s ({p95['low']:+.2f} to "
            f"{p95['high']:+.2f}), consumer-seconds {seconds['mean']:+.1f} % ({seconds['low']:+.1f} to "
            f"{seconds['high']:+.1f}), in time a consumer-second {worth['mean']:+.1f} % "
            f"({worth['low']:+.1f} to {worth['high']:+.1f})"
        )
        for name, found in row["j_beside_the_rule"].items():
            console.print(f"{row['protocol']}: {name} less rule: J {_text(found)}")
    report: dict[str, Any] = {"machine": machine(), "seeds": seeds, "cold_start": cold_start, "rows": rows}
    if networks:
        gate = report["gate"] = gated(j, list(networks), seeds)
        for name, found in [*gate["each"].items(), ("networks", gate["all"]), ("hindsight", gate["hindsight"])]:
            console.print(f"all protocols: {name} less rule: J {_text(found)} of {gate['rule']:.2f}")
        console.print(f"gate: {gate['status']}, {gate['percent']} of the rule's J")
    write(out, report, indent=1)


def _text(found: Mapping[str, float]) -> str:
    return f"{found['mean']:+.3f} ({found['low']:+.3f} to {found['high']:+.3f})"


if __name__ == "__main__":
    main()
