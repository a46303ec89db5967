"""Subject of the measurement of one policy, and the names that identify its series."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlscaler_core.decision.types import POOLS
from rlscaler_core.decision.units import SignalName, UnitName
from rlscaler_operator.sensing.presets import PRESETS, ByPods
from rlscaler_operator.sensing.presets.table import Histogram, Preset

SHOWN_PERCENTILE = 95.0
"""Latency percentile that is always measured, because it is an input of the actor."""

TOKEN_SIGNALS: tuple[SignalName, SignalName] = ("ttft", "tpot")
"""Latencies of the first and of each further token, which may both have an objective."""

WHOLE = ""
"""Key for all pools of a service, where its series have no name of the pool."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Service, targets and series of one policy."""

    namespace: str
    service: str
    deployments: tuple[str | None, str | None]
    """Names of the GPU and the CPU target, whatever their kinds."""
    percentile: float = SHOWN_PERCENTILE
    """Displayed percentile of the latency."""
    queries: tuple[tuple[str, str], ...] = ()
    """Pairs of a name in `spec.metrics.queries` and the PromQL that replaces the built-in query."""
    preset: str = ""
    """Preset of the server whose series are read; empty = the series of docs/metrics.md."""
    front_door: str = ""
    """Preset of the gateway that counts requests and latencies in place of the server; empty = the server does."""
    backends: tuple[str | None, str | None] = (None, None)
    """Services of the GPU and the CPU pool behind an HTTPRoute; None where there is none."""
    others: frozenset[str] = frozenset()
    """Targets that are no Deployments: their pods have other names."""
    unit: UnitName = "requests"
    """Unit of the load."""
    signal: SignalName = "endToEnd"
    """Measured latency."""
    token_weights: tuple[float, float] = (1.0, 1.0)
    """Weights of the tokens of prompts and of answers."""
    sized: tuple[tuple[str, str], ...] = ()
    """(target, container) of the pods whose size is recommended; an empty container is the pods' only one."""
    token_objectives: tuple[float, float] | None = None
    """Objectives on the first and on each further token, in milliseconds; None: the latency `signal` alone has one."""

    @property
    def counted_by(self) -> str:
        """Preset that counts requests and latencies."""
        return self.front_door or self.preset

    @property
    def load(self) -> str:
        """Unit of the load with the weights of its tokens, as queries are named by it."""
        prompt, answer = self.token_weights
        return self.unit if prompt == answer == 1 else f"{self.unit} {prompt:g} {answer:g}"

    @property
    def requests(self) -> Preset:
        return PRESETS[self.counted_by]

    @property
    def timed_by(self) -> str:
        """Preset of the latency histogram: only a server sees the times of its tokens."""
        return self.counted_by if self.signal == "endToEnd" else self.preset

    @property
    def histogram(self) -> Histogram | None:
        """Histogram of the latency; None where there is none."""
        return PRESETS[self.timed_by].histograms.get(self.signal)

    @property
    def latencies(self) -> tuple[Subject, ...]:
        """The subject once for each latency that has an objective."""
        if self.token_objectives is None:
            return (self,)
        return tuple(replace(self, signal=signal, token_objectives=None) for signal in TOKEN_SIGNALS)

    @property
    def counts_load(self) -> bool:
        """True where the preset counts the load in the policy's unit."""
        return {
            "requests": self.requests.counts_arrivals,
            "tokens": self.server.counts_tokens,
            "concurrency": bool(self.server.in_flight),
        }[self.unit]

    @property
    def counters(self) -> tuple[str, ...]:
        """Metrics of the load, without those that only add to it."""
        if self.unit == "requests":
            return self.requests.arrived or self.requests.answered
        tokens = self.server.tokens
        return self.server.in_flight if self.unit == "concurrency" else tokens.metrics if tokens else ()

    @property
    def server(self) -> Preset:
        """Preset of the server, by which the utilization is measured."""
        return PRESETS[self.preset]

    @property
    def sums_pools(self) -> bool:
        """True where the latency histograms of two pools have to be added up."""
        return len(self.identified_by(self.timed_by)) > 1

    @property
    def keys(self) -> set[tuple[str, str]]:
        """Keys of its readings in the answers to any query."""
        named = {(self.namespace, name) for name in self.deployments if name is not None}
        return named.union(*(self.identified_by(name).values() for name in (self.preset, self.counted_by)))

    def identified_by(self, preset: str) -> dict[str, tuple[str, str]]:
        """Return by pool, or by `WHOLE`, the (namespace, Deployment or service) that identifies a preset's series."""
        identity = PRESETS[preset].identified_by
        if isinstance(identity, ByPods) and not identity.suffix:
            names = self.deployments
        elif isinstance(identity, ByPods):
            return {WHOLE: (self.namespace, self.service + identity.suffix)}
        elif preset and all(self.backends):
            names = self.backends
        else:
            return {WHOLE: (self.namespace, self.service)}
        return {pool: (self.namespace, name) for pool, name in zip(POOLS, names, strict=True) if name is not None}
