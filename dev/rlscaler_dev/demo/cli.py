"""`rlscaler demo`: the product beside the HPA on one machine; `rlscaler demo report` draws a run again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from rlscaler_dev.demo.kafka.cli import kafka
from rlscaler_dev.demo.llm.cli import llm
from rlscaler_dev.demo.options import PRESENT_FILE, Seconds, duration, interval, pattern, place
from rlscaler_dev.demo.settings import CPU_POOL, DAILY, GPU_POOL, POLICIES, Pool, Settings
from rlscaler_dev.demo.tenants.cli import tenants
from rlscaler_dev.demo.vertical.cli import vertical

F = TypeVar("F", bound=Callable[..., Any])


def _cold_start(pool: Pool) -> Callable[[F], F]:
    return click.option(
        f"--{pool.name}-cold-start",
        type=Seconds(),
        default=pool.cold_start_seconds,
        show_default="{:g}-{:g}".format(*pool.cold_start_seconds),
        help=f"How long a {pool.name.upper()} pod takes from creation to ready.",
    )


@click.group(invoke_without_command=True)
@pattern(
    DAILY, "Shape of the load; daily: recorded traffic with a job that comes every day, which the policy has seen."
)
@duration(10, 86_400, 300)
@interval(15)
@click.option(
    "--policy",
    type=click.Choice(POLICIES),
    default="ppo",
    show_default=True,
    help="Bundled policy: the trained network, or the forecast rule beneath it alone.",
)
@place("demo", "Of pattern, arrivals and service.", out="results/demo-PATTERN")
@click.option("--slo-ms", type=click.FloatRange(10, 5000), default=1000.0, show_default=True, help="Latency objective.")
@_cold_start(GPU_POOL)
@_cold_start(CPU_POOL)
@click.option(
    "--capacity-error",
    type=click.FloatRange(-90, 100),
    default=0.0,
    show_default=True,
    help="Requests/s of a replica over the declared number, minus 1, in %; -30: a third slower than the policy says.",
)
@click.option(
    "--capacity-error-after",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Seconds of load until then, as where a new version of the model is rolled out.",
)
@click.option("--kubeconfig", type=PRESENT_FILE, help="Run on this cluster instead of starting a control plane.")
@click.option("--keep-cluster", is_flag=True, help="Leave the cluster and the service's objects for a closer look.")
def demo(gpu_cold_start: tuple[float, float], cpu_cold_start: tuple[float, float], **options: Any) -> None:
    """Play two copies of a service under one load: one under the HPA, one under an RLScalingPolicy.

    Starts the control plane, Prometheus, the operator, and for each copy an emulated inference service with a GPU and a
    CPU Deployment and Locust; shows both; stops everything and writes summary.json and timeline.png. Ctrl-C stops it at
    any time and leaves nothing running.

    \b
    rlscaler demo
    rlscaler demo --pattern spike
    rlscaler demo report results/demo-daily
    """
    if click.get_current_context().invoked_subcommand:
        return
    settings = Settings(
        out=options.pop("out") or Path("results", f"demo-{options['pattern']}").absolute(),
        gpu=replace(GPU_POOL, cold_start_seconds=gpu_cold_start),
        cpu=replace(CPU_POOL, cold_start_seconds=cpu_cold_start),
        **options,
    )
    from rlscaler_dev.demo.interrupts import ended_by_signal
    from rlscaler_dev.demo.run import play
    from rlscaler_dev.demo.screen import Screen

    screen = Screen(settings.duration_seconds)
    try:
        with ended_by_signal(screen.step, f"; the logs so far are in {settings.out}"):
            sentence = play(settings, screen)
    except click.ClickException:
        screen.step(f"it failed; the logs are in {settings.out / 'logs'}")
        raise
    _report(sentence, settings.out)


demo.add_command(kafka)
demo.add_command(llm)
demo.add_command(tenants)
demo.add_command(vertical)


@demo.command()
@click.argument("out", type=click.Path(exists=True, file_okay=False, path_type=Path))
def report(out: Path) -> None:
    """Write the summary, the timelines and the picture of the demo in OUT again from its raw records.

    \b
    rlscaler demo report results/demo-daily
    """
    from rlscaler_dev.demo.results import ResultFolder

    _report(ResultFolder(out).write_copies(), out)


def _report(sentence: str, out: Path) -> None:
    for line in (sentence, f"the picture: {out / 'timeline.png'}", f"each reason: rlscaler explain last {out}"):
        click.echo(line)
