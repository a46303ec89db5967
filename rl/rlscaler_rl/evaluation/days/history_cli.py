"""`rlscaler estimate` and `rlscaler simulate`. Heavy imports wait until one runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlscaler_core.options import output_option, writable
from rlscaler_rl.evaluation.days.telling import tell

if TYPE_CHECKING:
    from rlscaler_rl.evaluation.days.report import Report

MISSED = 3
"""Exit code: it is done, and the answer is no."""

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)

_HISTORY = click.option(
    "--history", type=_FILE, required=True, help="CSV of requests/s, as `rlscaler trace import` writes it."
)
_SCRAPE = click.option(
    "--scrape-seconds", default=15, show_default=True, help="How often Prometheus scrapes the service."
)


@click.command()
@_HISTORY
@click.option("--policy", type=_FILE, help="Manifest of the RLScalingPolicy; without it the README's example service.")
@_SCRAPE
@click.option("--out", type=_FOLDER, callback=writable, default=Path("results/estimate"), show_default=True)
@output_option
def estimate(history: Path, policy: Path | None, scrape_seconds: int, out: Path, output: str) -> None:
    """Say what each autoscaler would have cost on a recorded load: GPU-hours, money and late requests, with a picture.

    Nothing is trained. What is tuned is tuned on the first part of the history; all figures are of the rest.
    """
    from rich.console import Console

    from rlscaler_rl.evaluation.days.estimate import estimated

    console = Console(highlight=False, stderr=output == "json")
    with console.status("") as status:
        found = estimated(history, policy, scrape_seconds, out, lambda text: tell(console, status, text))
    _show(found, output, [])


@click.command()
@click.argument("policy", type=_FILE)
@_HISTORY
@click.option("--hpa", type=_FILE, help="YAML of the HPAs that scale the targets now; default: an HPA at 80 %.")
@click.option(
    "--model", type=click.Path(path_type=Path, exists=True), help="Network of a policy that names no bundled one."
)
@_SCRAPE
@click.option("--out", type=_FOLDER, callback=writable, default=Path("results/simulate"), show_default=True)
@output_option
def simulate(
    policy: Path, history: Path, hpa: Path | None, model: Path | None, scrape_seconds: int, out: Path, output: str
) -> None:
    """Play the RLScalingPolicy in the file POLICY on a recorded load, as it is written, beside the HPA as it is.

    Says GPU-hours, money, late requests and which guards acted. Nothing is trained or tuned; `rlscaler estimate` asks
    who else would do. Exit code 3: the policy misses its objective on that load.

    \b
    rlscaler simulate chat.yaml --history load.csv
    kubectl get hpa -n workloads -o yaml > hpa.yaml && rlscaler simulate chat.yaml --history load.csv --hpa hpa.yaml
    """
    from rich.console import Console

    from rlscaler_rl.evaluation.days.simulate import simulated

    console = Console(highlight=False, stderr=output == "json")
    with console.status("") as status:
        found = simulated(history, policy, model, hpa, scrape_seconds, out, lambda text: tell(console, status, text))
    _show(found, output, found.sentences())
    if not found.in_time:
        sys.exit(MISSED)


def _show(found: Report, output: str, sentences: list[str]) -> None:
    from rich.console import Console

    if output == "json":
        click.echo(found.model_dump_json(indent=1))
        return
    console = Console(highlight=False)
    console.print(found.table())
    for line in (*sentences, *found.notes, f"{found.picture} and {found.file} say more; {found.seconds:.0f} s"):
        console.print(line, soft_wrap=True, markup=False)
