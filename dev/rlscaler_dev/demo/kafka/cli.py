"""`rlscaler demo kafka`: consumers of a topic under one load, scaled on CPU and scaled on the stream."""

from __future__ import annotations

from typing import Any

import click

from rlscaler_dev.demo.kafka.plan import CONTENDERS, OF_POLICIES, Play
from rlscaler_dev.demo.options import REPORT, duration, interval, pattern, place
from rlscaler_loadgen.streams.cli import protocol_option


@click.command()
@click.option(
    "--contender",
    "names",
    type=click.Choice([*CONTENDERS]),
    multiple=True,
    help="Contender that scales the consumers; several are played one after another. KEDA is built the first time.  "
    "[default: those of --policy]",
)
@click.option(
    "--policy",
    "bundled",
    type=click.Choice([*OF_POLICIES]),
    default="rule",
    show_default=True,
    help="Bundled policy: rule beside the HPA, or the network streams beside rule, tuned KEDA and HPA.",
)
@pattern("spike", "Shape of the load.")
@duration(20, 86_400, 240)
@interval(15)
@protocol_option
@click.option("--skew", type=click.FloatRange(0, 5), default=0.0, show_default=True, help="Skew of the keys; 0 = even.")
@click.option(
    "--slo-ms", type=click.FloatRange(10), default=10_000.0, show_default=True, help="A message's longest wait."
)
@place("demo-kafka", "Of times, keys and work.")
@REPORT
def kafka(names: tuple[str, ...], bundled: str, only_report: bool, **options: Any) -> None:
    """Consumers of a topic of twelve partitions, under the HPA on CPU, KEDA on lag or a policy that reads the stream.

    Each contender gets a control plane of its own with a Kafka broker (Java, and Maven the first time), a producer and
    one real consumer for each ready pod. Writes summary.json, table.md and kafka.png of all contenders that have
    records in --out, so that one can be played alone.
    """
    from rlscaler_dev.demo.kafka import results
    from rlscaler_dev.demo.kafka.draw import draw
    from rlscaler_dev.demo.kafka.play import KafkaStage
    from rlscaler_dev.demo.stage import Comparison

    comparison = Comparison("Kafka", CONTENDERS, KafkaStage, results, draw)
    comparison.play(Play(**options), () if only_report else names or OF_POLICIES[bundled])
