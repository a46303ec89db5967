"""`rlscaler demo vertical`: pods of three kinds of services, resized on a real API server."""

from __future__ import annotations

import json
from pathlib import Path

import click

from rlscaler_dev.demo.options import place
from rlscaler_dev.demo.vertical.services import STEPS_A_DAY
from rlscaler_dev.demo.vertical.sizers import CONTENDERS, Reward


@click.command()
@click.option(
    "--contender",
    "names",
    type=click.Choice([contender.name for contender in CONTENDERS]),
    multiple=True,
    default=[contender.name for contender in CONTENDERS],
    show_default=True,
    help="Way to size pods (repeatable); all are played beside each other.",
)
@click.option(
    "--reward",
    type=click.Choice(["cost", "performance"]),
    default="cost",
    show_default=True,
    help="Aim by which `together` chooses few large or many small pods, as measured on the day before.",
)
@click.option(
    "--guess",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0.5, 10),
    help="Requests of the templates over the highest use of the day before.",
)
@click.option(
    "--steps",
    default=STEPS_A_DAY,
    show_default=True,
    type=click.IntRange(1, STEPS_A_DAY),
    help="Steps of ten minutes of the day.",
)
@place("demo-vertical", "Of the days that are drawn.")
def vertical(
    names: tuple[str, ...], reward: Reward, guess: float, steps: int, seed: int, out: Path, cluster_name: str
) -> None:
    """Three services (CPU-bound, memory-growing, mixed) play a day on a control plane of their own.

    Replicas follow the load; sizes stay, follow the VerticalPodAutoscaler's algorithm or rlscaler's recommendation, or
    are chosen together with the replicas. The use of pods is simulated; Deployments are scaled and running pods
    resized through the API server, and kwok plays the kubelets. Writes vertical.json, table.md and vertical.png.
    """
    from rlscaler_dev.cluster import api
    from rlscaler_dev.cluster.kube import KubeClient
    from rlscaler_dev.cluster.progress import ConsoleReporter
    from rlscaler_dev.demo.vertical import play as played
    from rlscaler_dev.demo.vertical.draw import draw
    from rlscaler_dev.demo.vertical.services import SERVICES

    chosen = [contender for contender in CONTENDERS if contender.name in names]
    this = played.Play(seed, guess, reward, steps)
    with (
        api.started(cluster_name, progress=ConsoleReporter(), prometheus=False) as cluster,
        KubeClient.from_kubeconfig(cluster.kubeconfig) as kube,
    ):
        courses = played.play(kube, chosen, SERVICES, this, lambda text: click.echo(text, err=True))
    out.mkdir(parents=True, exist_ok=True)
    (out / "vertical.json").write_text(json.dumps(played.plain(courses, this), indent=1) + "\n", encoding="utf-8")
    table = played.table(courses)
    (out / "table.md").write_text(table + "\n", encoding="utf-8")
    draw(courses, out / "vertical.png")
    click.echo(table)
    click.echo(f"{out / 'vertical.png'}", err=True)
