"""`rlscaler crd`: the CustomResourceDefinition and its reference page, generated and checked for drift."""

from __future__ import annotations

from pathlib import Path

import click

from rlscaler_dev.generate.files import differs, write

CRD_FILE = Path("crds/rlscalingpolicies.yaml")
REFERENCE_FILE = Path("docs/policy-reference.md")


def _render_crd() -> str:
    from rlscaler_dev.generate.crd.manifest import render

    return render()


def _render_reference() -> str:
    from rlscaler_dev.generate.crd.reference import render

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
    write(output, _render_crd())


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
    write(output, _render_reference())


@crd.command()
@click.option("--crd-file", type=click.Path(path_type=Path), default=CRD_FILE, show_default=True)
@click.option("--reference-file", type=click.Path(path_type=Path), default=REFERENCE_FILE, show_default=True)
def check(crd_file: Path, reference_file: Path) -> None:
    """Exit with 1 and a diff where a generated file is not what the models describe."""
    stale = [
        differs(crd_file, _render_crd, "rlscaler crd generate"),
        differs(reference_file, _render_reference, "rlscaler crd docs"),
    ]
    if any(stale):
        raise SystemExit(1)
