"""`rlscaler crd`: the CustomResourceDefinition and its reference page, generated and checked for drift."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import click

CRD_FILE = Path("crds/rlscalingpolicies.yaml")
REFERENCE_FILE = Path("docs/policy-reference.md")


def _render_crd() -> str:
    from rlscaler_operator.api.manifest import render

    return render()


def _render_reference() -> str:
    from rlscaler_operator.api.reference import render

    return render()


@click.group()
def crd() -> None:
    """Generate the CustomResourceDefinition or check it for drift."""


@crd.command()
@click.option(
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=CRD_FILE,
    show_default=True,
    help="Where to write; - is standard output.",
)
def generate(output: Path) -> None:
    """Write the CustomResourceDefinition that the models describe."""
    _write(output, _render_crd())


@crd.command()
@click.option(
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=REFERENCE_FILE,
    show_default=True,
    help="Where to write; - is standard output.",
)
def docs(output: Path) -> None:
    """Write the reference page of RLScalingPolicy."""
    _write(output, _render_reference())


@crd.command()
@click.option("--crd-file", type=click.Path(path_type=Path), default=CRD_FILE, show_default=True)
@click.option("--reference-file", type=click.Path(path_type=Path), default=REFERENCE_FILE, show_default=True)
def check(crd_file: Path, reference_file: Path) -> None:
    """Exit with 1 and a diff where a generated file is not what the models describe."""
    stale = [
        _differs(crd_file, _render_crd, "rlscaler crd generate"),
        _differs(reference_file, _render_reference, "rlscaler crd docs"),
    ]
    if any(stale):
        raise SystemExit(1)


def _write(output: Path, text: str) -> None:
    if str(output) == "-":
        click.echo(text, nl=False)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    click.echo(f"wrote {output}", err=True)


def _differs(path: Path, render: Callable[[], str], remedy: str) -> bool:
    """Whether the file differs from what is generated now; says how and what to do."""
    committed = path.read_text(encoding="utf-8") if path.is_file() else ""
    diff = list(
        difflib.unified_diff(
            committed.splitlines(keepends=True), render().splitlines(keepends=True), str(path), "generated"
        )
    )
    if diff:
        click.echo("".join(diff), nl=False)
        click.echo(f"{path} is not what the models describe: run '{remedy}' and commit it", err=True)
    return bool(diff)
