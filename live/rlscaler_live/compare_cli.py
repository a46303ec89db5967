"""`rlscaler evaluate` and `rlscaler compare`. Heavy imports wait until a command runs, so that --help is quick."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

INVALID = 3
"""Exit code of a run whose figures decide nothing."""

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
        "--traces", type=click.Path(path_type=Path), help="Folder of the full traces. [default: samples that ship]"
    ),
    click.option(
        "--interval",
        "interval_seconds",
        type=int,
        help="Action interval, seconds; settings that were tuned have their own. [default: 30]",
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
    click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        help="Result folder. [default: rl/<kind>_YYYYMMDD_HHMMSS]",
    ),
    click.option(
        "--extras/--no-extras",
        default=None,
        help="Also play drawn scales, steady loads, single pools and the whole envelope. [default: yes]",
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
    """Score one model on every workload, beside its controls and main rivals (rl/evaluation_*/)."""
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
    execute = _executor(options.pop("env"))
    accept_invalid = options.pop("accept_invalid")
    workloads = options.pop("workloads")
    if workloads is not None:
        options["workloads"] = tuple(name.strip() for name in workloads.split(",") if name.strip())
    valid = execute(kind, **options)
    if not valid and not accept_invalid:
        raise SystemExit(INVALID)


def _executor(environment: str) -> Callable[..., bool]:
    """Plays episodes in the simulator or on a cluster, and says whether the run is valid."""
    if environment == "sim":
        from rlscaler_rl.evaluation.command import execute

        return execute
    from rlscaler_live.command import execute as execute_live

    return execute_live


@click.command()
@click.argument("comparison", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--manifest", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="[default: the bundled]")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="[default: standard output]")
def card(comparison: Path, manifest: Path | None, out: Path | None) -> None:
    """Write the model card of the network that `rlscaler days` played; its results are in the folder COMPARISON."""
    from rlscaler_core.decision.exceptions import ModelError
    from rlscaler_core.decision.manifest import Manifest
    from rlscaler_core.models import load_bundled
    from rlscaler_rl.evaluation.days.card import card as written
    from rlscaler_rl.evaluation.days.table import DayTable

    source = comparison / "days.json"
    try:
        table = DayTable.model_validate_json(source.read_text(encoding="utf-8"))
        text = written(table, Manifest.load(manifest) if manifest else load_bundled("ppo").manifest)
    except (OSError, ValueError, ModelError) as error:
        raise click.ClickException(f"{source}: {error}") from error
    if out is None:
        click.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")
