"""A recorded load played once more: the policy as it is, with another setting, and the HPA formula. Pure.

The virtual services of Shadow are stepped through the decisions of the log, so the same judge counts cost and lateness
as for the evidence. All sides are judged by the changed objective and price.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlscaler_core.decision.batch import stack_size
from rlscaler_core.decision.decide import Kind
from rlscaler_core.decision.types import CPU, GPU, POOLS, Int, Params, Samples
from rlscaler_core.decision.units import LoadUnit
from rlscaler_core.queueing.fluid import by_capacity
from rlscaler_operator.cli.replay.actors import AvailableActors
from rlscaler_operator.exceptions import RecordError
from rlscaler_operator.records.rows import decode_params, decode_samples
from rlscaler_operator.shadow.simulation import (
    LONGEST_STEP_SECONDS,
    Passed,
    ShadowSimulation,
    advance_meters,
    hpa_params,
    new_simulation,
    scale_virtual,
)

HPA = "HPA formula"

Json = dict[str, Any]


FIELDS: Mapping[str, tuple[str, type[float] | type[int], float, float]] = {
    "latency_ms": ("spec.slo.latencyMilliseconds", int, 1, 3_600_000),
    "gpu_price": ("spec.targets.gpu.costPerHour", float, 0.001, 1_000_000),
    "min_gpu": ("spec.targets.gpu.minReplicas", int, 0, 10_000),
    "min_cpu": ("spec.targets.cpu.minReplicas", int, 0, 10_000),
}
"""Fields of a form: the field of the policy, its type and bounds."""


@dataclass(frozen=True, slots=True)
class Change:
    """Settings to try; None leaves one as it is."""

    latency_ms: int | None = None
    gpu_price: float | None = None
    min_gpu: int | None = None
    min_cpu: int | None = None

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> Change:
        """Return the change that a form asks for. Raises ValueError, which names the field and the remedy."""
        values: dict[str, float | int] = {}
        for name, (label, kind, low, high) in FIELDS.items():
            if text := texts.get(name, "").strip():
                try:
                    value = kind(text)
                except ValueError:
                    value = kind(-1)
                if not low <= value <= high:
                    whole = "a whole number" if kind is int else "a number"
                    raise ValueError(f"{label}: {text[:40]!r} is not {whole} from {low:g} to {high:g}")
                values[name] = value
        return cls(**values)  # type: ignore[arg-type]

    def decided(self, params: Params) -> Params:
        """Return the parameters that the changed policy decides by."""
        changed = self.judged(params)
        for pool, least in ((GPU, self.min_gpu), (CPU, self.min_cpu)):
            if least is not None and params.present[0, pool]:
                changed.min_replicas[0, pool] = min(least, int(params.max_replicas[0, pool]))
        return changed

    def judged(self, params: Params) -> Params:
        """Return the parameters that all sides are judged by."""
        changed = params.copy()
        if self.latency_ms is not None:
            changed.slo_ms[0] = self.latency_ms
        if self.gpu_price is not None:
            changed.cost_per_hour[0, GPU] = self.gpu_price
        return changed

    def spec(self) -> Json:
        """Return the change as a merge patch of the policy."""
        gpu = {"minReplicas": self.min_gpu, "costPerHour": self.gpu_price}
        targets: dict[str, Json] = {"gpu": gpu, "cpu": {"minReplicas": self.min_cpu}}
        chosen = {pool: {k: v for k, v in fields.items() if v is not None} for pool, fields in targets.items()}
        patch: Json = {"slo": {"latencyMilliseconds": self.latency_ms}} if self.latency_ms is not None else {}
        if filled := {pool: fields for pool, fields in chosen.items() if fields}:
            patch["targets"] = filled
        return {"spec": patch} if patch else {}


@dataclass(slots=True)
class Side:
    """One autoscaler on the load: its sums, and its replicas over time."""

    label: str
    gpu_hours: float = 0.0
    cpu_hours: float = 0.0
    cost: float = 0.0
    requests: float = 0.0
    late: float = 0.0
    time: list[float] = field(default_factory=list)
    replicas: list[tuple[int, int]] = field(default_factory=list)

    def add(self, passed: Passed, replicas: Int, samples: Samples, real: bool = False) -> None:
        """Add one step of one row in which these replicas (1, 2) ran: of the virtual service, or of the real one."""
        (gpu, cpu), hours = replicas[0].tolist(), float(passed.seconds[0]) / 3600
        self.gpu_hours, self.cpu_hours = self.gpu_hours + hours * gpu, self.cpu_hours + hours * cpu
        self.cost += float((passed.real_cost if real else passed.virtual_cost)[0])
        self.late += float((passed.real_late if real else passed.virtual_late)[0])
        self.requests += float(passed.requests[0])
        self.time.append(float(samples.time[0]))
        self.replicas.append((int(gpu), int(cpu)))

    @property
    def late_percent(self) -> float | None:
        return 100 * self.late / self.requests if self.requests else None


def played(records: Iterable[Json], actors: AvailableActors, change: Change | None = None) -> list[Side]:
    """Return the sides: the recorded run, the HPA formula and, with a `change`, the policy as it is and changed.

    Raises RecordError where a record cannot be read, or nothing in the log can be played.
    """
    labels = [HPA] if change is None else [HPA, "this policy", "changed"]
    ran, sides, change = Side("as it ran"), [Side(label) for label in labels], change or Change()
    simulation: ShadowSimulation | None = None
    for record in records:
        params, samples = _as_believed(decode_params(record["params"]), record), decode_samples(record["samples"])
        if params.unit[0] != LoadUnit.REQUESTS or params.stream[0]:
            raise RecordError("only loads that are counted in requests can be played again")
        actor = actors.find(record.get("actor") or {}) if record["kind"] == "action" else None
        if simulation is None and actor is None:
            continue
        judged = change.judged(params)
        if simulation is None:
            simulation = ShadowSimulation.concat([new_simulation(judged, samples, stack_size(actor)) for _ in sides])
        deciding = Params.concat([hpa_params(params), params, change.decided(params)][: len(sides)])
        simulation, passed = _stepped(simulation, judged, samples)
        ran.add(passed.take([0]), samples.spec_replicas * params.present, samples, real=True)
        for number, side in enumerate(sides):
            side.add(passed.take([number]), (simulation.fleet.spec * params.present)[number : number + 1], samples)
        _scale(simulation, deciding, samples, actor, record["kind"])
    if not ran.requests and not ran.cost:
        text = f"no two decisions are at most {LONGEST_STEP_SECONDS:g} s apart with the load and the capacity known"
        raise RecordError(f"the log holds nothing that can be played: {text}")
    return [ran, *sides]


def _as_believed(params: Params, record: Json) -> Params:
    """Return the parameters with the capacity that the record's decision went by, for all sides alike."""
    own = params.copy()
    own.learns_capacity[:] = False
    if (capacity := record.get("capacity")) is not None:
        own.requests_per_second[0] = [math.nan if capacity[pool] is None else capacity[pool] for pool in POOLS]
    return own


def _stepped(simulation: ShadowSimulation, judged: Params, samples: Samples) -> tuple[ShadowSimulation, Passed]:
    """Advance every side, one row each, to the time of the samples (1 row)."""
    rows = np.zeros(len(simulation.params), np.intp)
    all_judged, all_samples = judged.take(rows), samples.take(rows)
    share, window = by_capacity(all_judged, all_samples.ready_replicas), float(judged.window_seconds[0])
    current = replace(simulation, params=all_judged)
    return advance_meters(current, all_samples, share, window, ~all_samples.paused)


def _scale(simulation: ShadowSimulation, deciding: Params, samples: Samples, actor: Any, kind: Kind) -> None:
    """Scale the first side by the HPA formula, and the others by the policy's actor."""
    for rows, driver in ((slice(0, 1), None), (slice(1, len(deciding)), actor)):
        there = np.arange(len(deciding), dtype=np.intp)[rows]
        if there.size:
            own = samples.take(np.zeros(there.size, np.intp))
            part = scale_virtual(simulation.take(rows), own, deciding.take(rows), driver, kind, ~own.paused)
            simulation.put(rows, part)


def sentence(sides: Sequence[Side]) -> str:
    """Return the difference between the last side and the policy as it is."""
    policy, changed = sides[2], sides[3]
    if not policy.cost:
        return ""
    cost = 100 * (changed.cost / policy.cost - 1)
    late = (changed.late_percent or 0.0) - (policy.late_percent or 0.0)
    dearer, later = "less" if cost < 0 else "more", "fewer" if late < 0 else "more"
    return (
        f"Changed, it would have cost {abs(cost):.0f} % {dearer}, with {abs(late):.2f} percentage points {later} late."
    )
