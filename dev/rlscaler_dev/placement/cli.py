"""`rlscaler scheduler test1` and `test2`: policies beside kube-scheduler's default on the development cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlscaler_core.options import FOLDER, PRESENT_FOLDER
from rlscaler_dev.placement.churn import Course, Plan

if TYPE_CHECKING:
    from rlscaler_dev.placement.live import Live


def _run(
    test: str,
    count: int,
    names: Sequence[str],
    folders: Sequence[Path],
    out: Path,
    cluster_name: str,
    seed: int,
    port: int | None,
    **settings: Any,
) -> None:
    from rlscaler_dev.cluster import api
    from rlscaler_dev.cluster.kube import KubeClient
    from rlscaler_dev.cluster.progress import ConsoleReporter
    from rlscaler_dev.placement import churn
    from rlscaler_dev.placement.contenders import contenders
    from rlscaler_dev.placement.draw import draw, draw_nodes
    from rlscaler_dev.placement.live import Live, served

    plan, live = Plan(test, seed=seed, **settings), Live(f"{test} on {count} nodes")
    chosen = contenders(names, folders)
    for contender in chosen:
        contender.check()
    courses: list[Course] = []
    with (
        served(live, port) if port is not None else nullcontext("") as address,
        api.started(cluster_name, progress=ConsoleReporter(), prometheus=False) as cluster,
        KubeClient.from_kubeconfig(cluster.kubeconfig) as kube,
    ):
        if address:
            click.echo(f"live graphs: {address}", err=True)
        bed = churn.Testbed(kube, count, seed)
        for contender in chosen:
            folder = out / contender.name.replace("/", "-").replace(" ", "-")
            say = _shown(live, contender.name, count)
            courses.append(churn.play(bed, cluster.kubeconfig, contender, plan, folder, say))
            draw_nodes(courses[-1], bed.names, folder / "nodes.png", f"{test}, {contender.name}")
            click.echo("", err=True)
    (out / f"{test}.json").write_text(json.dumps(churn.plain(plan, courses), indent=1), encoding="utf-8")
    draw(courses, out / f"{test}.png", f"{test} on {count} nodes")
    click.echo(churn.table(courses))
    click.echo(f"{out / f'{test}.png'}", err=True)


def _shown(live: Live, name: str, count: int) -> Callable[[Course], None]:
    """Return a function that shows the course in the browser, and its last look on one line of the terminal."""

    def say(course: Course) -> None:
        live.show(course)
        row = course.rows[-1]
        used = round(row["nodes_in_use"])
        bar = "█" * round(30 * used / count) + "·" * (30 - round(30 * used / count))
        click.echo(
            f"\r{name:>20} {row['seconds']:6.1f} s {bar} {used:4d} of {count} nodes in use, {row['pods']:4.0f} pods, "
            f"{row['latency_ms']:5.1f} ms",
            nl=False,
            err=True,
        )

    return say


OPTIONS: list[click.Parameter] = [
    click.Option(["--nodes", "count"], default=100, show_default=True, type=click.IntRange(3, 5000)),
    click.Option(
        ["--contender", "names"],
        multiple=True,
        help="default, a policy, or POLICY/RULE (repeatable).  [default: default and EL; with --model-dir the default "
        "and every rule]",
    ),
    click.Option(
        ["--model-dir", "folders"],
        multiple=True,
        type=PRESENT_FOLDER,
        help="Folder of networks, which are played beside the rules (repeatable).",
    ),
    click.Option(["--deployments"], default=30, show_default=True, type=click.IntRange(1)),
    click.Option(["--every", "every_s"], default=3.0, show_default=True, help="Seconds between two of them."),
    click.Option(["--wait", "wait_s"], default=20.0, show_default=True, help="Seconds when all are there."),
    click.Option(["--repeats"], default=2, show_default=True, type=click.IntRange(1), help="Times that all come."),
    click.Option(["--seed"], default=0, show_default=True),
    click.Option(["--port"], type=click.IntRange(0, 65_535), help="Serve live graphs on this port of loopback."),
    click.Option(["--out"], type=FOLDER, required=True),
    click.Option(["--cluster-name"], default="scheduler", show_default=True, help="Control plane to start."),
]

test1, test2 = (
    click.Command(name, params=OPTIONS, callback=partial(_run, name), help=meaning)
    for name, meaning in (
        ("test1", "Deployments come one by one, all go, and come again."),
        ("test2", "Deployments come one by one; then the oldest goes whenever a new one comes."),
    )
)
