"""Options that the demos share; a parameter has the name of its field in the settings, and paths are absolute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rlscaler_core.options import writable
from rlscaler_dev.demo.settings import PATTERNS

F = TypeVar("F", bound=Callable[..., Any])

PRESENT_FILE = click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path)
FOLDER = click.Path(file_okay=False, resolve_path=True, path_type=Path)
REPORT = click.option(
    "--report", "only_report", is_flag=True, help="Write table and picture again from the records in --out."
)


class Seconds(click.ParamType[tuple[float, float]]):
    """A range of seconds, as 35-55, or one number."""

    name = "SECONDS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        if isinstance(value, tuple):
            return value
        parts = str(value).removesuffix("s").split("-")
        try:
            low, high = float(parts[0]), float(parts[-1])
        except ValueError:
            self.fail(f"{value!r} is not a range of seconds such as 35-55", param, ctx)
        if len(parts) > 2 or not 0 <= low <= high:
            self.fail(f"{value!r} is not a range of seconds from low to high, such as 35-55", param, ctx)
        return low, high


def pattern(default: str, meaning: str) -> Callable[[F], F]:
    """Add `--pattern`, and `--trace`, which is refused for another pattern than `trace`."""

    def goes_with(context: click.Context, parameter: click.Parameter, trace: Path | None) -> Path | None:
        if trace and context.params["pattern"] != "trace":
            raise click.UsageError(f"--trace is for --pattern trace, not for --pattern {context.params['pattern']}")
        return trace

    def add(command: F) -> F:
        trace = "CSV of time_s,requests_per_s for --pattern trace.  [default: a sample of LLM chat traffic]"
        command = click.option("--trace", type=PRESENT_FILE, callback=goes_with, help=trace)(command)
        shapes = click.Choice(PATTERNS)
        return click.option("--pattern", type=shapes, default=default, show_default=True, is_eager=True, help=meaning)(
            command
        )

    return add


def duration(fewest: int, most: int, default: int) -> Callable[[F], F]:
    """Add `--duration`, from `fewest` to `most` seconds."""
    return click.option(
        *("--duration", "duration_seconds"),
        type=click.IntRange(fewest, most),
        default=default,
        show_default=True,
        help="Seconds of load.",
    )


def interval(default: int) -> Callable[[F], F]:
    """Add `--interval`, the action interval."""
    return click.option(
        *("--interval", "interval_seconds"),
        type=click.IntRange(10, 300),
        default=default,
        show_default=True,
        help="Action interval of the policy in seconds.",
    )


def place(name: str, seed: str, out: str | None = None) -> Callable[[F], F]:
    """Add `--seed` (of a subject), `--out` and `--cluster-name` ; `out` describes the default folder."""

    def add(command: F) -> F:
        whole: dict[str, Any] = {"help": f"Result folder.  [default: {out}]"} if out else {"default": f"results/{name}"}
        command = click.option("--cluster-name", default=name, show_default=True, help="Name of the control plane.")(
            command
        )
        command = click.option("--out", type=FOLDER, callback=writable, show_default=True, **whole)(command)
        return click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help=seed)(command)

    return add
