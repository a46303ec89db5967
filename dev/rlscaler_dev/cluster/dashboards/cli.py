"""`rlscaler dashboard`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rlscaler_dev.cluster.dashboards.ask import Source
    from rlscaler_dev.cluster.dashboards.model import Dashboard

Command = TypeVar("Command", bound=Callable[..., Any])


def _source_options(command: Command) -> Command:
    for option in reversed(
        (
            click.option(
                "--prometheus-url", default="http://127.0.0.1:9090", show_default=True, help="Prometheus that is asked."
            ),
            click.option(
                "--last", "minutes", type=float, default=15.0, show_default=True, help="Minutes that are shown."
            ),
            click.option("--scrape-interval", type=float, default=15.0, show_default=True, help="Seconds."),
            click.option(
                "--var", "given", multiple=True, metavar="NAME=VALUE", help="Value of a variable (repeatable)."
            ),
        )
    ):
        command = option(command)
    return command


@click.group()
def dashboard() -> None:
    """Look at Grafana dashboards without Grafana."""


@dashboard.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_source_options
def check(files: tuple[Path, ...], **source: Any) -> None:
    """Check that Prometheus has data for every panel of FILES; exit 1 where one is empty."""
    from rlscaler_dev.cluster.dashboards.model import load

    empty = 0
    for path in files:
        content = load(path)
        prometheus, values = _resolve(content, **source)
        click.echo(f"{content.title} ({path})")
        for shown in prometheus.show(content, values):
            empty += shown.empty
            state = "EMPTY" if shown.empty else f"{sum(map(len, shown.answers))} series"
            if shown.unanswered and not shown.empty:
                state += f", none for: {'; '.join(target.expr for target in shown.unanswered)}"
            click.echo(f"  {shown.panel.title:28} {state}")
    if empty:
        click.echo(f"{empty} panels are empty", err=True)
        sys.exit(1)


@dashboard.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="PNG to write.")
@_source_options
def draw(file: Path, out: Path, **source: Any) -> None:
    """Draw FILE with the data of a live Prometheus as a PNG."""
    from rlscaler_dev.cluster.dashboards.draw import draw as draw_panels
    from rlscaler_dev.cluster.dashboards.model import load

    content = load(file)
    prometheus, values = _resolve(content, **source)
    chosen = {variable.name: values[variable.name] for variable in content.variables}
    draw_panels(content, list(prometheus.show(content, values)), chosen, out, prometheus.marks(content, values))
    click.echo(out)


def _resolve(
    content: Dashboard, prometheus_url: str, minutes: float, scrape_interval: float, given: tuple[str, ...]
) -> tuple[Source, dict[str, str]]:
    from rlscaler_dev.cluster.dashboards.ask import Source

    pairs = [pair.partition("=") for pair in given]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        raise click.UsageError(f"--var {wrong[0]}: write NAME=VALUE")
    source = Source(prometheus_url, 60 * minutes, 4 * scrape_interval)
    return source, source.resolve(content, {name: value for name, _, value in pairs})
