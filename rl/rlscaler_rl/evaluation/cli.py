"""`rlscaler evaluate` and `rlscaler compare`. Heavy imports wait until a command runs, so that --help is quick."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from rlscaler_rl.evaluation.errors import EvaluationError

INVALID = 3
"""Exit code of a run whose figures decide nothing."""

_OPTIONS = (
    click.option(
        "--model", help="Training folder, .onnx, .zip, `bundled` or `rule`. Default: newest training, else bundled."
    ),
    click.option("--runs", type=int, help="Seeds; run r uses seed + r. [default: 5]"),
    click.option("--episodes", type=int, help="Episodes per run and pattern. [default: 16]"),
    click.option("--seed", type=int, help="[default: 0]"),
    click.option("--patterns", help="Comma-separated: ramp, spike, periodic, random, trace. [default: the first four]"),
    click.option("--interval", "interval_seconds", type=int, help="Action interval, seconds. [default: 30]"),
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
    click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        help="Result folder. [default: rl/<kind>_YYYYMMDD_HHMMSS]",
    ),
    click.option(
        "--extras/--no-extras",
        default=None,
        help="Also play drawn scales and phases, and services with one pool. [default: yes]",
    ),
    click.option("--accept-invalid", is_flag=True, help="Exit 0 even when a control scores as well as the model."),
    click.option("--schema", is_flag=True, help="Print the JSON Schema of the result file and exit."),
)


def _with_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.command()
@_with_options
def evaluate(**options: Any) -> None:
    """Score one model on every pattern, beside its controls and main rivals (rl/evaluation_*/)."""
    _run("evaluation", options)


@click.command()
@_with_options
def compare(**options: Any) -> None:
    """Compare the model with every contender; losses first (rl/comparison_*/)."""
    _run("comparison", options)


def _run(kind: str, options: dict[str, Any]) -> None:
    if options.pop("schema"):
        from rlscaler_rl.evaluation.schema import ResultFile, json_schema

        click.echo(json_schema(ResultFile))
        return
    if options.pop("env") == "cluster":
        raise EvaluationError(
            "--env cluster: episodes are played in the simulator only in this release; the cluster comes later. "
            "For one run on a real control plane use `rlscaler demo --contender rl` and `--contender hpa`."
        )
    from rlscaler_rl.evaluation.command import execute

    accept_invalid = options.pop("accept_invalid")
    patterns = options.pop("patterns")
    if patterns is not None:
        options["patterns"] = tuple(name.strip() for name in patterns.split(",") if name.strip())
    valid = execute(kind, **options)
    if not valid and not accept_invalid:
        raise SystemExit(INVALID)
