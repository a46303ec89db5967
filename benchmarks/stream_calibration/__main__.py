"""How far simulated consumer groups are from real ones: what rebalances cost, and how long messages wait.

    python -m benchmarks.stream_calibration [--repeats 1] [--at-once 6] [--records FOLDER] [--out FILE.json]
    python -m benchmarks.stream_calibration --recorded FOLDER [--out FILE.json]

Measured: a broker on loopback, the consumers of `rlscaler service consumers` without pods around them, and the messages
of `rlscaler load produce`, in real time. A course has a step of load and two changes of consumers; `course.py` has the
numbers. Simulated: the stream level on the messages that were written, with heartbeats at the moments of the clients'
before the load, in `--draws` groups that differ in where in its batch a consumer is. `--recorded` simulates again
beside what was measured before.

One half of the courses is for choosing the simulator's constants, and the other, each protocol, size and batch of them
as well, judges them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click
import numpy as np
from benchmarks.stream_calibration import broker, measured, simulated
from benchmarks.stream_calibration.course import Course, courses
from benchmarks.stream_calibration.figures import Figures, Pair, pair, table_of
from rich.console import Console

from rlscaler_dev.benchmark import machine, out_option, write
from rlscaler_dev.cluster import launcher
from rlscaler_dev.cluster.broker_alone import broker_alone
from rlscaler_dev.cluster.kafka.broker import Broker
from rlscaler_dev.cluster.kafka.jars import provide
from rlscaler_dev.cluster.progress import ConsoleReporter

Played = tuple[Course, Figures, Figures]


@click.command()
@click.option("--repeats", type=click.IntRange(1, 2), default=1, show_default=True, help="How often each is played.")
@click.option("--at-once", type=click.IntRange(1), default=6, show_default=True, help="Groups beside one another.")
@click.option("--draws", type=click.IntRange(1), default=20, show_default=True, help="Simulated groups of a course.")
@click.option(
    "--records",
    type=click.Path(file_okay=False, path_type=Path),
    default="results/stream-calibration",
    show_default=True,
)
@click.option("--recorded", type=click.Path(file_okay=False, exists=True, path_type=Path), help="Play nothing anew.")
@out_option
def main(repeats: int, at_once: int, draws: int, records: Path, recorded: Path | None, out: Path | None) -> None:
    """Print join, stop, orphan wait and lag on the broker and in the simulator, and the error in percent."""
    if recorded is None:
        name = f"stream-calibration-{os.getpid()}"
        with broker_alone(name, provide(ConsoleReporter())) as cluster:
            servers = Broker(launcher.layout_of(cluster)).bootstrap_servers
            broker.play(courses(repeats), servers, records.absolute(), at_once)
    folder = recorded or records
    played = [_figures(course, folder / course.name, draws) for course in courses(2) if (folder / course.name).exists()]
    console = Console(width=130)
    document = {}
    for half, there in (("fitted", True), ("judged", False)):
        rows = [one for one in played if one[0].fitted is there]
        each, means = [_pair([one]) for one in rows], list(_means(rows))
        console.print(table_of(each, f"{half}: each course"), table_of(means, f"{half}: means"))
        document[half] = {"courses": [one.to_json() for one in each], "means": [one.to_json() for one in means]}
    write(out, {"machine": machine(), "draws": draws, **document}, indent=1)


def _figures(course: Course, folder: Path, draws: int) -> Played:
    records = measured.read(folder)
    beats = np.array([records.beats[pod] for pod in sorted(records.beats)])
    return course, measured.figures(records), simulated.figures(course, measured.arrivals(records), beats, draws)


def _pair(rows: list[Played]) -> Pair:
    return pair(*(list(column) for column in zip(*rows, strict=True)))  # type: ignore[arg-type]


def _means(rows: Iterable[Played]) -> Iterable[Pair]:
    """One row for the courses of each protocol and batch."""
    groups: dict[tuple[str, str], list[Played]] = {}
    for one in rows:
        groups.setdefault((one[0].protocol, one[0].batch), []).append(one)
    return map(_pair, groups.values())


if __name__ == "__main__":
    main()
