"""Commands `rlscaler estimate` and `rlscaler simulate`. Heavy imports wait until one runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rlscaler_core.options import FOLDER, PRESENT_FILE, output_option, writable
from rlscaler_rl.evaluation.tokens import SERVER_HELP, TABLE_WIDTH

if TYPE_CHECKING:
    from rlscaler_rl.evaluation.days.report import Report

TRIALS = 24
"""Settings that are tried for each autoscaler of a token service."""

MISSED = 3
"""Exit code of a policy that misses its objective."""


def _of_history(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which load is played, and how much of it."""
    options = (
        click.option(
            "--history",
            "path",
            type=PRESENT_FILE,
            required=True,
            help="Recorded load: CSV or JSON of Grafana or Prometheus.",
        ),
        click.option("--series", help="Name of one series of a file that holds several."),
        click.option(
            "--days", type=click.IntRange(1), help="Judge at most so many days, the last ones.  [default: all]"
        ),
        click.option(
            "--scrape-seconds", default=15, show_default=True, help="How often Prometheus scrapes the service."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@_of_history
@click.option(
    "--policy", type=PRESENT_FILE, help="Manifest of the RLScalingPolicy; without it the README's example service."
)
@click.option(
    "--server",
    help=f"{SERVER_HELP} For a policy in tokens; --history is a log of requests then: "
    "TIMESTAMP,ContextTokens,GeneratedTokens.",
)
@click.option("--out", type=FOLDER, callback=writable, default=Path("results/estimate"), show_default=True)
@output_option
def estimate(policy: Path | None, server: str | None, out: Path, output: str, **history: Any) -> None:
    """Compare the cost of autoscalers on a recorded load: GPU-hours, money and late requests, with a picture.

    Nothing is trained. Settings are tuned on the first 60 % of the history, with --server on half of it; all figures
    are of the rest.
    """
    if server is not None:
        _of_tokens(policy, server, out, output, **history)
        return
    from rlscaler_rl.evaluation.days import answer, judged

    _show(lambda progress: answer.estimated(judged.History(**history), policy, out, progress), output)


@click.command()
@click.argument("policy", type=PRESENT_FILE)
@_of_history
@click.option("--hpa", type=PRESENT_FILE, help="YAML of the HPAs that scale the targets now; default: an HPA at 80 %.")
@click.option(
    "--model", type=click.Path(path_type=Path, exists=True), help="Network of a policy that names no bundled one."
)
@click.option("--out", type=FOLDER, callback=writable, default=Path("results/simulate"), show_default=True)
@output_option
def simulate(policy: Path, hpa: Path | None, model: Path | None, out: Path, output: str, **history: Any) -> None:
    """Play the RLScalingPolicy in the file POLICY on a recorded load, as it is written, beside the HPA as it is.

    Prints GPU-hours, money, late requests and which guards acted. Nothing is trained or tuned; `rlscaler estimate` adds
    tuned autoscalers. Exit code 3: the policy misses its objective on that load.

    \b
    rlscaler simulate chat.yaml --history load.csv
    kubectl get hpa -n workloads -o yaml > hpa.yaml && rlscaler simulate chat.yaml --history load.csv --hpa hpa.yaml
    """
    from rlscaler_rl.evaluation.days import answer, judged

    report = _show(
        lambda progress: answer.simulated(judged.History(**history), policy, model, hpa, out, progress), output
    )
    if not report.in_time:
        sys.exit(MISSED)


def _of_tokens(policy: Path | None, server: str, out: Path, output: str, path: Path, **others: Any) -> None:
    given = click.get_current_context().get_parameter_source
    if policy is None or any(given(name) is ParameterSource.COMMANDLINE for name in others):
        raise click.UsageError(
            "--server plays the policy of --policy on a log of requests: name it; leave out --series, "
            "--days and --scrape-seconds"
        )
    from rlscaler_rl.evaluation.tokens.load import of_requests, server_of
    from rlscaler_rl.evaluation.tokens.single import simulated
    from rlscaler_rl.results.document import progress, show_table, write

    with progress(output) as tell:
        result = simulated(policy, partial(of_requests, path), server_of(server), tell, TRIALS)
    table = result.table()
    write(result, [f"# {table.title}", "", *table.markdown()], out, "estimate")
    show_table(result, table, [f"{out}/estimate.json has the settings"], output, TABLE_WIDTH)


def _show(play: Callable[[Callable[[str], None]], Report], output: str) -> Report:
    """Play with a spinner, and print the report."""
    from rlscaler_rl.results.document import progress, show_table

    with progress(output) as tell:
        report = play(tell)
    last = f"{report.picture} and {report.file} have the details; {report.seconds:.0f} s"
    show_table(report, report.table(), [*report.sentences(), *report.notes, last], output)
    return report
