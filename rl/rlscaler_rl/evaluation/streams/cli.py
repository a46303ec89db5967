"""`rlscaler streams`. Heavy imports wait until a command runs."""

from __future__ import annotations

import math
from pathlib import Path

import click
from click.core import ParameterSource

from rlscaler_core.options import FOLDER, PRESENT_FILE, fresh, output_option
from rlscaler_loadgen.streams.cli import PATTERN_NAMES, protocol_option

SHAPES = tuple(name for name in PATTERN_NAMES if name != "trace")

MOST_CONSUMERS = 255
"""The simulator draws 1,024 numbers for each group, and each consumer takes four of them at the begin."""

_COUNT = click.IntRange(1, MOST_CONSUMERS)
_RATE = click.FloatRange(0, 10_000_000)


@click.group()
def streams() -> None:
    """Simulate the consumers of a Kafka topic, and train a network for them."""


@streams.command()
@click.option("--pattern", type=click.Choice(SHAPES), default="spike", show_default=True, help="Shape of the load.")
@click.option("--duration", type=click.IntRange(60, 21_600), default=600, show_default=True, help="Seconds of load.")
@click.option("--low", type=_RATE, default=60.0, show_default=True, help="Lowest load in messages/s.")
@click.option("--peak", type=_RATE, default=600.0, show_default=True, help="Highest load in messages/s.")
@click.option(
    "--history",
    type=PRESENT_FILE,
    help="CSV of messages/s in place of a shape, as `rlscaler trace import` writes it; its last 6 h are played.",
)
@click.option(
    "--partitions", type=click.IntRange(1, 1000), default=12, show_default=True, help="Partitions of the topic."
)
@click.option(
    "--messages-per-second",
    type=click.FloatRange(0, 1_000_000, min_open=True),
    default=100.0,
    show_default=True,
    help="Messages that one consumer processes, as requestsPerSecond of a policy.",
)
@protocol_option
@click.option(
    "--objective",
    type=click.FloatRange(0, 86_400, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds that a message may wait.",
)
@click.option("--min", "fewest", type=_COUNT, default=1, show_default=True, help="Fewest consumers.")
@click.option("--max", "most", type=_COUNT, help="Most consumers.  [default: one for each partition]")
@click.option(
    "--seeds",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="Number of groups that are played, each with messages, keys and cold starts of its own.",
)
@click.option(
    "--model",
    help="Network that plays too: `streams`, the bundled one, or folder or policy.onnx of `rlscaler streams train`.",
)
@output_option
@click.pass_context
def simulate(
    context: click.Context,
    pattern: str,
    duration: int,
    low: float,
    peak: float,
    history: Path | None,
    partitions: int,
    messages_per_second: float,
    protocol: str,
    objective: float,
    fewest: int,
    most: int | None,
    seeds: int,
    model: str | None,
    output: str,
) -> None:
    """Play the consumers of a Kafka topic with the operator's forecast rule and with KEDA as it comes and tuned.

    The table has lag, late messages, consumer-seconds and rebalances of each, of a planner that knows every message to
    come, and the fewest possible consumer-seconds. KEDA is tuned by a search on other seeds of the load. The simulator
    underestimates lags below a second.

    \b
    rlscaler streams simulate --pattern spike --partitions 12 --messages-per-second 100
    rlscaler streams simulate --history load.csv --protocol consumer --objective 5
    """
    highest = most or min(partitions, MOST_CONSUMERS)
    _check_load(context, history, low, peak)
    _check_group(fewest, highest, {"--messages-per-second": messages_per_second, "--objective": objective})
    from rlscaler_rl.evaluation.models import load_for_streams
    from rlscaler_rl.evaluation.streams.loads import recorded, shaped
    from rlscaler_rl.evaluation.streams.result import Consumers
    from rlscaler_rl.evaluation.streams.simulate import simulated
    from rlscaler_rl.results.document import progress, show_table

    load = recorded(history, seeds) if history is not None else shaped(pattern, duration, low, peak, seeds)
    group = Consumers(
        partitions=partitions,
        messages_per_second=messages_per_second,
        protocol=protocol,
        objective_seconds=objective,
        fewest=fewest,
        most=highest,
    )
    network = load_for_streams(model) if model else None
    with progress(output) as tell:
        result = simulated(load, group, tell, network)
    show_table(result, result.table(), result.notes, output)


@streams.command()
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of loads, groups and network.")
@click.option("--steps", type=click.IntRange(1), help="Action intervals, of all groups together.  [default: 200,000]")
@click.option("--out", type=FOLDER, required=True, help="Folder for policy and manifest.")
@click.option("--install", is_flag=True, help="Make the result the bundled network `streams`.")
@click.option("--force", is_flag=True, help="Overwrite the network in --out.")
def train(seed: int, steps: int | None, out: Path, install: bool, force: bool) -> None:
    """Train a network for the consumers of a Kafka topic, on drawn groups in the simulator.

    Its action is added to the forecast rule. A policy with signal.kafka uses it by spec.policy.configMap, as
    `rlscaler publish --force` writes it. Takes about six minutes of one core.

    \b
    rlscaler streams train --seed 1 --out rl/streams_1
    rlscaler streams simulate --model rl/streams_1
    """
    from rlscaler_rl.training.streams import Options
    from rlscaler_rl.training.streams import install as installed
    from rlscaler_rl.training.streams import train as trained

    fresh(out / "policy.onnx", force)
    options = Options(seed=seed) if steps is None else Options(seed=seed, steps=steps)
    click.echo(trained(options, out, click.echo))
    if install:
        installed(out)


def _check_load(context: click.Context, history: Path | None, low: float, peak: float) -> None:
    """Raise UsageError for two loads at once, and for levels that are no load."""
    shape = ("pattern", "duration", "low", "peak")
    given = [f"--{name}" for name in shape if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if history is not None and given:
        raise click.UsageError(f"--history: is the load itself; leave out {', '.join(given)}, or --history")
    if not low <= peak or peak == 0:
        raise click.UsageError(f"--low {low:g}, --peak {peak:g}: messages/s above 0 are needed, --low at most --peak")


def _check_group(fewest: int, most: int, positive: dict[str, float]) -> None:
    """Raise UsageError for bounds that cross, and for NaN, which a range of click lets pass."""
    if fewest > most:
        raise click.UsageError(f"--min {fewest}: more than the {most} of --max; lower it, or raise --max")
    for option, value in positive.items():
        if math.isnan(value):
            raise click.UsageError(f"{option} {value:g}: give a number above 0")
