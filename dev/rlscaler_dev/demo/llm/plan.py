"""Servers and load, which are the same for every contender, and the objects that scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlscaler_dev.cluster.kube import Json
from rlscaler_dev.demo import manifests
from rlscaler_dev.demo.settings import NAMESPACE, Pool

NAME, SERVER = "chat", "8b-a100"
DURATION_SECONDS, COLD_START_SECONDS = 420, (35.0, 55.0)
COST_PER_HOUR = 4.1
INITIAL = 4
"""Replicas at the load's begin, as the load of the first minutes needs them."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A contender: a policy, or KEDA on a number of vLLM."""

    name: str
    title: str
    query: str = ""
    """PromQL of KEDA's trigger; empty: a policy scales."""
    threshold: str = ""
    """Number of that query that KEDA plans for each replica."""


def _sum(*names: str) -> str:
    return " + ".join(f'sum(vllm:{name}{{namespace="{NAMESPACE}"}})' for name in names)


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("keda", "KEDA, 5 waiting", _sum("num_requests_waiting"), "5"),
        Contender(
            "keda-in-flight",
            "KEDA, 16 running or waiting",
            _sum("num_requests_running", "num_requests_waiting"),
            "16",
        ),
        Contender("rlscaler", "RLScalingPolicy in tokens"),
    )
}
PLAYED = ("keda", "rlscaler")


@dataclass(frozen=True, slots=True)
class Play:
    """Load, servers and objective of a run."""

    out: Path
    """Folder of the results; each contender has a folder of its own in it."""
    server: str = SERVER
    duration_seconds: int = DURATION_SECONDS
    interval_seconds: int = 15
    """Action interval of the policy."""
    cold_start_seconds: tuple[float, float] = COLD_START_SECONDS
    seed: int = 1
    cluster_name: str = "demo-llm"

    @property
    def pool(self) -> Pool:
        """The Deployment of the servers; their capacity is in tokens and measured."""
        return Pool("gpu", NAME, 1.0, COST_PER_HOUR, self.cold_start_seconds, max_replicas=16)


def deployment(this: Play) -> Json:
    """Return the Deployment with the replicas that the load's begin needs."""
    body = manifests.deployment(this.pool)
    body["spec"]["replicas"] = INITIAL
    return body


def scaler(contender: Contender, this: Play, prometheus: str, facts: Mapping[str, float]) -> Json:
    """Return the object that scales. `facts` are those of the usual mix that the emulated servers tell."""
    if contender.query:
        return scaled_object(contender, this, prometheus)
    return policy(this, facts)


def scaled_object(contender: Contender, this: Play, prometheus: str) -> Json:
    """KEDA's ScaledObject on a number of vLLM, with the defaults of everything else."""
    metadata = {"serverAddress": prometheus, "query": contender.query, "threshold": contender.threshold}
    spec: Json = {
        "scaleTargetRef": {"name": NAME},
        "minReplicaCount": this.pool.min_replicas,
        "maxReplicaCount": this.pool.max_replicas,
        "triggers": [{"type": "prometheus", "metadata": metadata}],
    }
    return manifests.thing("keda.sh/v1alpha1", "ScaledObject", NAME, NAMESPACE, spec=spec)


def policy(this: Play, facts: Mapping[str, float]) -> Json:
    """The policy of the guide for vLLM, with the capacity for the usual mix as a first guess."""
    capacity = {
        "unit": "tokens",
        "tokenWeights": {"prompt": 1, "answer": round(facts["answer_weight"], 2)},
        "perReplica": {"gpu": round(facts["tokens_per_second"])},
    }
    slo: Json = {
        "latencyMilliseconds": round(1000 * facts["first_seconds"]),
        "signal": "ttft",
        "timePerOutputTokenMilliseconds": round(1000 * facts["token_seconds"]),
    }
    fields: Json = {"capacity": capacity, "slo": slo, "metrics": {"preset": "vllm"}}
    body = manifests.scaling_policy(
        NAME, NAMESPACE, [this.pool], this.interval_seconds, slo["latencyMilliseconds"], **fields
    )
    # The capacity is in tokens, which requests/s of a target would contradict.
    del body["spec"]["targets"]["gpu"]["requestsPerSecond"]
    return body
