"""`rlscaler scheduler test1` and `test2`: policies beside kube-scheduler's default, on a control plane or simulated."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlscaler_core.options import FOLDER, PRESENT_FOLDER
from rlscaler_dev.placement.churn import Bed, Course, Plan

if TYPE_CHECKING:
    from rlscaler_dev.placement.live import Live


def _run(
    test: str,
    count: int,
    names: Sequence[str],
    folders: Sequence[Path],
    out: Path,
    simulated: bool,
    cluster_name: str,
    port: int | None,
    **settings: Any,
) -> None:
    from rlscaler_dev.placement import churn
    from rlscaler_dev.placement.contenders import contenders
    from rlscaler_dev.placement.draw import draw, draw_nodes
    from rlscaler_dev.placement.live import Live, served

    if simulated and port is not None:
        raise click.UsageError("--port: a simulated test is over at once; leave out --port or --simulated")
    plan, live = Plan(test, **settings), Live(f"{test} on {count} nodes")
    title = f"{live.title}, simulated" if simulated else live.title
    chosen = contenders(names, folders)
    for contender in chosen:
        contender.check()
    courses: list[Course] = []
    with (
        served(live, port) if port is not None else nullcontext("") as address,
        nullcontext(_simulated(count)) if simulated else _started(count, cluster_name) as bed,
    ):
        if address:
            click.echo(f"live graphs: {address}", err=True)
        for contender in chosen:
            folder = out / contender.name.replace("/", "-").replace(" ", "-")
            courses.append(churn.play(bed, contender, plan, folder, _shown(live, contender.name, count)))
            draw_nodes(courses[-1], bed.names, folder / "nodes.png", f"{title}: {contender.name}")
            click.echo("", err=True)
    (out / f"{test}.json").write_text(json.dumps(churn.plain(plan, courses)), encoding="utf-8")
    draw(courses, out / f"{test}.png", title)
    click.echo(churn.table(courses))
    click.echo(f"{out / f'{test}.png'}", err=True)


def _simulated(count: int) -> Bed:
    from rlscaler_dev.placement.simulated import Simulated

    return Simulated(count)


@contextmanager
def _started(count: int, cluster_name: str) -> Iterator[Bed]:
    from rlscaler_dev.cluster import api
    from rlscaler_dev.cluster.kube import KubeClient
    from rlscaler_dev.cluster.progress import ConsoleReporter
    from rlscaler_dev.placement.control_plane import ControlPlane

    with (
        api.started(cluster_name, progress=ConsoleReporter(), prometheus=False) as cluster,
        KubeClient.from_kubeconfig(cluster.kubeconfig) as kube,
    ):
        yield ControlPlane(kube, cluster.kubeconfig, count)


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
    click.Option(
        ["--simulated"],
        is_flag=True,
        help="Without a control plane: rules and networks place the pods in this process, and no time is waited for.",
    ),
    click.Option(["--cluster-name"], default="scheduler", show_default=True, help="Control plane to start."),
]

test1, test2 = (
    click.Command(name, params=OPTIONS, callback=partial(_run, name), help=meaning)
    for name, meaning in (
        ("test1", "Deployments come one by one, all go, and come again."),
        ("test2", "Deployments come one by one; then the oldest goes whenever a new one comes."),
    )
)
