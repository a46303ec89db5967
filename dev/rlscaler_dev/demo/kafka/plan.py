"""Topic, consumers and load, which are the same for every contender, and the objects that scale."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from rlscaler_dev.cluster.kube import Json
from rlscaler_dev.demo import manifests
from rlscaler_dev.demo.settings import NAMESPACE, Pool

TOPIC, GROUP, NAME = "orders", "billing", "billing"
PARTITIONS = 12
MESSAGES_PER_SECOND = 100.0
"""Messages a second of one consumer: 10 ms of work on a message."""

LOW, PEAK = 60.0, 600.0
"""Bounds of the load in messages/s: one consumer's work, and that of six."""

CONSUMERS = Pool(
    "cpu", NAME, MESSAGES_PER_SECOND, cost_per_hour=0.625, cold_start_seconds=(5, 11), max_replicas=PARTITIONS
)
SENSE_SECONDS = 2

TUNED_WORK_SECONDS, TUNED_DOWN_SECONDS = 0.6, 15
"""Tuned settings of KEDA: the lag of each consumer as seconds of its work, and seconds until consumers go.

Searched at commit 5c41c3e on simulated loads, which are not those of this demo.
"""


class Scaler(Enum):
    """Kinds of objects that scale."""

    HPA = "HorizontalPodAutoscaler"
    KEDA = "ScaledObject"
    POLICY = "RLScalingPolicy"


@dataclass(frozen=True, slots=True)
class Contender:
    """A contender: the object that scales the consumers."""

    name: str
    title: str
    scaler: Scaler
    tuned: bool = False
    """Whether threshold and stabilization window of KEDA are the searched ones."""
    bundled: str = "rule"
    """`spec.policy.bundled` of the policy."""


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("hpa", "HPA, 80 % of CPU", Scaler.HPA),
        Contender("keda", "KEDA on lag, default", Scaler.KEDA),
        Contender("keda-tuned", "KEDA on lag, tuned", Scaler.KEDA, tuned=True),
        Contender("rlscaler", "RLScalingPolicy on the stream", Scaler.POLICY),
        Contender("streams", "RLScalingPolicy, network streams", Scaler.POLICY, bundled="streams"),
    )
}
PLAYED = ("hpa", "rlscaler")
"""Contenders that are played by default; KEDA takes some minutes to build the first time."""

OF_POLICIES = {"rule": PLAYED, "streams": ("hpa", "keda-tuned", "rlscaler", "streams")}
"""Contenders by the bundled policy that the demo is about."""


@dataclass(frozen=True, slots=True)
class Play:
    """Load, consumers and objective of a run."""

    out: Path
    """Folder of the results; each contender has a folder of its own in it."""
    pattern: str = "spike"
    duration_seconds: int = 240
    interval_seconds: int = 15
    """Action interval of the policy."""
    protocol: str = "cooperative-sticky"
    skew: float = 0.0
    """Skew of the keys (`rlscaler load produce --skew`)."""
    slo_ms: float = 10_000.0
    """Objective: the longest wait of a message."""
    seed: int = 1
    trace: Path | None = None
    """CSV of time and rate for the pattern `trace`."""
    pool: Pool = CONSUMERS
    cluster_name: str = "demo-kafka"


def scaler(contender: Contender, this: Play, broker: str) -> Json:
    """Return the object that scales, which reads the stream from `broker` (host:port) where it reads one."""
    match contender.scaler:
        case Scaler.HPA:
            return manifests.autoscaler(this.pool)
        case Scaler.KEDA:
            return scaled_object(this, broker, contender.tuned)
        case Scaler.POLICY:
            return policy(this, broker, contender.bundled)


def scaled_object(this: Play, broker: str, tuned: bool) -> Json:
    """KEDA's ScaledObject on the group's lag: as it comes, or tuned.

    The HPA that KEDA sets up asks for the lag every 15 s, whatever `pollingInterval` says.
    """
    metadata = {"bootstrapServers": broker, "consumerGroup": GROUP, "topic": TOPIC, "offsetResetPolicy": "earliest"}
    spec: Json = {
        "scaleTargetRef": {"name": this.pool.deployment},
        "minReplicaCount": 1,
        "maxReplicaCount": this.pool.max_replicas,
        "triggers": [{"type": "kafka", "metadata": metadata}],
    }
    if tuned:
        metadata["lagThreshold"] = str(round(TUNED_WORK_SECONDS * this.pool.requests_per_second))
        behavior = {"scaleDown": {"stabilizationWindowSeconds": TUNED_DOWN_SECONDS}}
        spec["advanced"] = {"horizontalPodAutoscalerConfig": {"behavior": behavior}}
    return manifests.thing("keda.sh/v1alpha1", "ScaledObject", NAME, NAMESPACE, spec=spec)


def policy(this: Play, broker: str, bundled: str) -> Json:
    """The RLScalingPolicy of the consumers, with this bundled policy as it comes."""
    kafka = {"bootstrapServers": [broker], "topics": [TOPIC], "group": GROUP, "offsetReset": "earliest"}
    fields: Json = {"senseSeconds": SENSE_SECONDS, "signal": {"kafka": kafka}}
    return manifests.scaling_policy(NAME, NAMESPACE, [this.pool], this.interval_seconds, this.slo_ms, bundled, **fields)
