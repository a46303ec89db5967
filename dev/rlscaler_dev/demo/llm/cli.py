"""`rlscaler demo llm`: emulated vLLM servers, scaled on a queue and scaled in tokens."""

from __future__ import annotations

from typing import Any

import click

from rlscaler_dev.demo.llm.plan import COLD_START_SECONDS, CONTENDERS, DURATION_SECONDS, PLAYED, SERVER, Play
from rlscaler_dev.demo.options import REPORT, Seconds, duration, interval, place


@click.command()
@click.option(
    "--contender",
    "names",
    type=click.Choice([*CONTENDERS]),
    multiple=True,
    default=PLAYED,
    show_default=True,
    help="Contender that scales the servers; several are played one after another. KEDA is built the first time.",
)
@click.option("--server", default=SERVER, show_default=True, help="Constants, as of `rlscaler tokens weights`.")
@click.option(
    "--cold-start",
    "cold_start_seconds",
    type=Seconds(),
    default=COLD_START_SECONDS,
    show_default="{:g}-{:g}".format(*COLD_START_SECONDS),
    help="How long a pod takes from creation to ready.",
)
@duration(60, 86_400, DURATION_SECONDS)
@interval(15)
@place("demo-llm", "Of requests and of times.")
@REPORT
def llm(names: tuple[str, ...], only_report: bool, **options: Any) -> None:
    """Emulated vLLM servers whose mix drifts and surges, under KEDA on a queue or a policy in tokens.

    Each contender gets a control plane of its own. The servers are those of the simulator's token level, in real time:
    one process stands for all pods of the Deployment, and exports the series of vLLM. Writes summary.json, table.md
    and llm.png of all contenders that have records in --out.
    """
    from rlscaler_dev.demo.llm import results
    from rlscaler_dev.demo.llm.draw import draw
    from rlscaler_dev.demo.llm.play import LlmStage
    from rlscaler_dev.demo.stage import Comparison

    comparison = Comparison("LLM", CONTENDERS, LlmStage, results, draw)
    comparison.play(Play(**options), () if only_report else names)
