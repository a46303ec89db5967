"""`rlscaler demo tenants`: services that share the GPUs of one cluster, with a budget and without."""

from __future__ import annotations

from typing import Any

import click

from rlscaler_dev.demo.options import REPORT, duration, interval, place
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
@duration(60, 7200, 300)
@click.option(
    "--speed",
    type=click.FloatRange(1, 60),
    default=12.0,
    show_default=True,
    help="Seconds of the recorded loads in one second.",
)
@interval(10)
@place("demo-tenants", "Of arrivals and service times.")
@REPORT
def tenants(names: tuple[str, ...], only_report: bool, **options: Any) -> None:
    """Eight services of three namespaces share 16 GPUs, under recorded loads.

    Each contender gets a control plane of its own with two nodes of eight GPUs, an emulated service and Locust for each
    tenant. Writes summary.json, table.md and tenants.png of all contenders that have records in --out, so that one can
    be played alone.
    """
    from rlscaler_dev.demo.stage import Comparison
    from rlscaler_dev.demo.tenants import results
    from rlscaler_dev.demo.tenants.draw import draw
    from rlscaler_dev.demo.tenants.play import Play, TenantsStage

    comparison = Comparison("tenants", CONTENDERS, TenantsStage, results, draw)
    comparison.play(Play(**options), () if only_report else names)
