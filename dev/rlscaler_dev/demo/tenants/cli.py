"""`rlscaler demo tenants`: services that share the GPUs of one cluster, with a budget and without."""

from __future__ import annotations

from pathlib import Path

import click

from rlscaler_core.options import writable
from rlscaler_dev.demo.tenants.manifests import CONTENDERS

DEFAULTS = ("hpa", "policies", "max-min")


@click.command()
@click.option(
    "--contender",
    "names",
    type=click.Choice([*CONTENDERS]),
    multiple=True,
    default=DEFAULTS,
    show_default=True,
    help="Contender: the scaler, and the arbiter of the GPUs; several are played one after another.",
)
@click.option("--duration", type=click.IntRange(60, 7200), default=300, show_default=True, help="Seconds of load.")
@click.option(
    "--speed",
    type=click.FloatRange(1, 60),
    default=12.0,
    show_default=True,
    help="Seconds of the recorded loads in one second.",
)
@click.option("--interval", type=click.IntRange(10, 300), default=10, show_default=True, help="Action interval.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of arrivals and service times.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    callback=writable,
    default=Path("results/demo-tenants"),
    show_default=True,
)
@click.option("--cluster-name", default="demo-tenants", show_default=True, help="Name of the control plane.")
@click.option("--report", "only_report", is_flag=True, help="Write table and picture again from the records in --out.")
def tenants(
    names: tuple[str, ...],
    duration: int,
    speed: float,
    interval: int,
    seed: int,
    out: Path,
    cluster_name: str,
    only_report: bool,
) -> None:
    """Eight services of three namespaces share 16 GPUs, under recorded loads.

    Each contender gets a control plane of its own with two nodes of eight GPUs, an emulated service and Locust for each
    tenant. Writes summary.json, table.md and tenants.png of all contenders that have records in --out, so that one can
    be played alone.
    """
    from rlscaler_dev.demo.stage import Comparison
    from rlscaler_dev.demo.tenants import results
    from rlscaler_dev.demo.tenants.draw import draw
    from rlscaler_dev.demo.tenants.play import Play, play

    this = Play(out.absolute(), duration, speed, interval, seed, cluster_name=cluster_name)
    Comparison("tenants", list(CONTENDERS), results.read, results.figures, results.table, "tenants.png", draw).play(
        this.out, () if only_report else names, lambda name, say: play(this, CONTENDERS[name], say)
    )
