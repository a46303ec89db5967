"""`rlscaler evaluate` and `rlscaler compare`. Heavy imports wait until a command runs, so that --help is quick."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlscaler_core.options import FOLDER, names_in, output_option, writable

if TYPE_CHECKING:
    from rich.console import Console

    from rlscaler_rl.evaluation.schema import ResultFile

INVALID = 3
"""Exit code of an invalid run."""

_OPTIONS = (
    click.option(
        "--model",
        multiple=True,
        help="Training folder, .onnx, .zip, `bundled` or `rule`; a folder of seed_*/, or --model again, for other "
        "training seeds of the same recipe (the first is the one that ships). Default: newest training, else bundled.",
    ),
    click.option("--runs", type=int, help="Seeds; run r uses seed + r. [default: 5]"),
    click.option("--episodes", type=int, help="Episodes per run and workload. [default: 16]"),
    click.option("--seed", type=int, help="[default: 0]"),
    click.option(
        "--workloads",
        help="Comma-separated names, `patterns`, `traces`, or a .csv of your own. [default: patterns,traces]",
    ),
    click.option(
        "--level",
        type=click.Choice(["request", "fluid"]),
        help="Simulate every request, or the fluid that training uses. [default: request]",
    ),
    click.option(
        "--world",
        type=click.Choice(["uncertain", "exact"]),
        help="Capacity wrong and drifting, starts priced, scrapes of 15 s; or all as declared. [default: uncertain]",
    ),
    click.option(
        "--traces", type=click.Path(path_type=Path), help="Folder of the full traces. [default: samples that ship]"
    ),
    click.option(
        "--interval",
        "interval_seconds",
        type=int,
        help="Action interval, seconds; tuned contenders have their own. [default: 30]",
    ),
    click.option("--duration", "duration_seconds", type=int, help="Seconds an episode. [default: 600]"),
    click.option(
        "--env",
        type=click.Choice(["sim", "cluster"]),
        default="sim",
        show_default=True,
        help="Where episodes are played.",
    ),
    click.option(
        "--config", type=click.Path(path_type=Path), help="JSON with an `environment` part; options win over it."
    ),
    click.option("--out", type=FOLDER, callback=writable, help="Result folder. [default: rl/<kind>_YYYYMMDD_HHMMSS]"),
    click.option(
        "--extras/--no-extras",
        default=None,
        help="Also play drawn scales, steady loads, single pools and the whole envelope. [default: yes]",
    ),
    click.option("--accept-invalid", is_flag=True, help="Exit 0 even when a control scores as well as the model."),
    click.option("--schema", is_flag=True, help="Print the JSON Schema of the result file and exit."),
    output_option,
)


def _with_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.command()
@_with_options
def evaluate(**options: Any) -> None:
    """Score one model on every workload, beside its controls and main rivals (rl/evaluation_*/)."""
    _run("evaluation", options)


@click.command()
@_with_options
def compare(**options: Any) -> None:
    """Compare the model with every contender; losses first (rl/comparison_*/)."""
    _run("comparison", options)


def _run(kind: str, options: dict[str, Any]) -> None:
    from rlscaler_rl.evaluation.schema import ResultFile, json_schema

    if options.pop("schema"):
        click.echo(json_schema(ResultFile))
        return
    from rich.console import Console

    from rlscaler_rl.evaluation.inputs import default_folder

    output, accept_invalid, workloads = (options.pop(name) for name in ("output", "accept_invalid", "workloads"))
    if workloads is not None:
        options["workloads"] = names_in("--workloads", workloads)
    play = _simulated if options.pop("env") == "sim" else _live
    folder = options.pop("out") or default_folder(kind)
    result = play(kind, folder, Console(stderr=output == "json"), **options)
    if output == "json":
        click.echo(result.json_text())
    else:
        from rlscaler_rl.evaluation.report.terminal import show

        show(result, folder, Console())
    if not result.valid and not accept_invalid:
        raise SystemExit(INVALID)


def _simulated(kind: str, folder: Path, console: Console, **options: Any) -> ResultFile:
    from rlscaler_rl.evaluation.inputs import read_inputs

    inputs = read_inputs(**options)
    from rlscaler_rl.evaluation.command import execute

    return execute(kind, inputs, folder, console)


def _live(kind: str, folder: Path, console: Console, **options: Any) -> ResultFile:
    from rlscaler_live.command import execute

    return execute(kind, options.pop("model"), options.pop("config"), folder, console, **options)
