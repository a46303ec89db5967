"""Reaction time and standing cost of this operator, the HPA and KEDA, each on a fresh cluster with the same step.

    python -m benchmarks.scale [--contenders rlscaler,hpa,keda] [--policies 1,100,1000] [--out FOLDER]

Writes one JSON file per measurement, `table.md` and `reaction.png` into FOLDER. Measurements whose file is there are
not taken again (`--again` does), so that an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
from benchmarks.scale.contenders import contenders
from benchmarks.scale.measure import measure
from benchmarks.scale.report import write_report
from benchmarks.scale.testbed import Testbed, cluster_name

from rlscaler_dev.benchmark import machine, write


def _numbers(_: click.Context, __: click.Parameter, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a list of numbers like 1,100,1000") from error


def _names(_: click.Context, __: click.Parameter, text: str) -> list[str]:
    names = text.split(",")
    if unknown := sorted(set(names) - set(contenders())):
        raise click.BadParameter(f"no contender {', '.join(unknown)}; there are {', '.join(contenders())}")
    return names


@click.command()
@click.option("--policies", default="1,100,1000", show_default=True, callback=_numbers, help="Numbers of services.")
@click.option("--contenders", "names", default=",".join(contenders()), show_default=True, callback=_names)
@click.option(
    "--seconds", default=60.0, show_default=True, help="Length of the measurement of standing cost; 0 = none."
)
@click.option("--again", is_flag=True, help="Take measurements again whose file is there.")
@click.option("--out", type=click.Path(path_type=Path), default="results/benchmarks/scale", show_default=True)
def main(policies: list[int], names: list[str], seconds: float, again: bool, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for number in policies:
        for name in names:
            file = out / f"{name}-{number}.json"
            if file.exists() and not again:
                click.echo(f"{file} is there")
                continue
            click.echo(f"{name}: {number} policies")
            load = os.getloadavg()[0]
            with Testbed(cluster_name(), [f"svc-{i:04d}" for i in range(number)]) as testbed:
                result = measure(name, contenders()[name], testbed, seconds, load)
            write(file, result.to_json() | {"machine": machine()})
            click.echo(json.dumps({k: v for k, v in result.to_json().items() if k != "react_seconds"}))
    click.echo(write_report(out))


if __name__ == "__main__":
    main()
