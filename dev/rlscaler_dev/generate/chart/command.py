"""`rlscaler chart`: the generated files of the Helm charts, and whether they are current."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from rlscaler_dev.generate.files import differs, write
from rlscaler_operator.exceptions import OperatorError


def _explained(command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def run() -> None:
        try:
            command()
        except (OperatorError, OSError) as error:
            raise click.ClickException(str(error)) from error

    return run


@click.group()
def chart() -> None:
    """Generate files of the Helm charts or check them for drift.

    Run it in the root of the source tree.
    """


@chart.command()
@_explained
def generate() -> None:
    """Write what the charts install, the descriptions in values.schema.json, and README.md of each chart."""
    from rlscaler_dev.generate.chart.files import generated

    for path, render in generated():
        write(path, render())


@chart.command()
@_explained
def check() -> None:
    """Exit with 1 and a diff where a file is not what it is generated from."""
    from rlscaler_dev.generate.chart.files import generated

    stale = [differs(path, render, "rlscaler chart generate") for path, render in generated()]
    if any(stale):
        raise SystemExit(1)
