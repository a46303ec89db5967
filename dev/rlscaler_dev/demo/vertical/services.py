"""Three kinds of services and their days: load, replicas, and the CPU and memory that each pod uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlscaler_core.decision.types import Bool
from rlscaler_dev.demo.records import Float

STEP_SECONDS = 600
STEPS_A_DAY = 86_400 // STEP_SECONDS
CARRIES, FULL, BUSY_PODS = 20.0, 0.8, 6
"""Requests/s of a pod of the template, the share of it that is planned with, and pods of the busiest hour."""
LEAST_PODS = 2
NOISE = 0.1
"""Standard deviation of the logarithm of a pod's share of the load."""
CPU_LIMIT, MEMORY_LIMIT = 2.0, 1.25
"""Limits over requests."""
SESSION_STEPS = 3
"""Steps over which the memory of sessions follows the load."""
SLOWEST_SECONDS = 5.0
"""After this time a client gives up."""
MIB, GIB = 2.0**20, 2.0**30
DOLLARS_PER_CORE_HOUR, DOLLARS_PER_GIB_HOUR = 0.033, 0.0045

Size = tuple[float, float]
"""Requested cores and bytes of a container."""


@dataclass(frozen=True)
class Service:
    """Need of a pod at rest, for each request/s, and for each hour since its start."""

    name: str
    cores: float
    cores_per_rps: float
    bytes: float
    bytes_per_rps: float
    bytes_per_hour: float
    phase: float
    """Part of a day by which its busy hours are later."""


SERVICES = (
    Service("cpu-bound", 0.05, 0.04, 400 * MIB, 0.0, 0.0, 0.0),
    Service("memory-growing", 0.05, 0.01, 300 * MIB, 40 * MIB, 20 * MIB, 0.3),
    Service("mixed", 0.05, 0.03, 300 * MIB, 20 * MIB, 10 * MIB, 0.6),
)


def day(service: Service, seed: int) -> Float:
    """Return the requests/s (STEPS_A_DAY,) of a drawn day: a night, a busy afternoon, and noise."""
    rng = np.random.default_rng([seed, len(service.name)])
    hours = np.arange(STEPS_A_DAY) / STEPS_A_DAY - service.phase
    shape = 0.2 + 0.8 * np.clip(np.sin(2 * np.pi * hours), 0.0, None) ** 1.5
    rate: Float = FULL * CARRIES * BUSY_PODS * shape * np.exp(rng.normal(0.0, 0.08, STEPS_A_DAY))
    return rate


def replicas(rate: float, scale: float) -> int:
    """Return the number of pods for a load; a pod carries `scale` times that of the template."""
    return max(int(np.ceil(rate / (FULL * CARRIES * scale))), LEAST_PODS)


@dataclass
class Use:
    """Use of the pods of a service in one step."""

    load: Float
    cores: Float
    memory: Float


@dataclass
class Pods:
    """State of a service's pods by name: hours since the start, and memory of sessions."""

    service: Service
    seed: int
    hours: dict[str, float] = field(default_factory=dict)
    sessions: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def use(self, names: Sequence[str], rate: float) -> Use:
        """Return the use of these pods at a load, and let a step pass."""
        share = np.exp(self._rng.normal(0.0, NOISE, len(names)))
        load = rate * share / share.sum()
        self.hours = {name: self.hours.get(name, 0.0) + STEP_SECONDS / 3600 for name in names}
        before = self.sessions
        self.sessions = {
            name: before.get(name, 0.0) + (requests - before.get(name, 0.0)) / SESSION_STEPS
            for name, requests in zip(names, load, strict=True)
        }
        service = self.service
        sessions, hours = (np.array([values[name] for name in names]) for values in (self.sessions, self.hours))
        memory = service.bytes + service.bytes_per_rps * sessions + service.bytes_per_hour * np.minimum(hours, 24.0)
        return Use(load, service.cores + service.cores_per_rps * load, memory)

    def kill(self, name: str) -> None:
        """Begin a pod's memory anew."""
        self.hours[name] = self.sessions[name] = 0.0


@dataclass
class Figures:
    """Sums over the steps of a day."""

    dollars: float = 0.0
    requests: float = 0.0
    late: float = 0.0
    killed: int = 0
    resizes: int = 0
    seconds: float = 0.0
    """Response time of all requests together."""

    @property
    def late_percent(self) -> float:
        return 100 * self.late / max(self.requests, 1e-9)

    @property
    def response_ms(self) -> float:
        """Mean response time."""
        return 1000 * self.seconds / max(self.requests, 1e-9)

    def add(self, service: Service, use: Use, cores: Float, memory: Float) -> Bool:
        """Count a step of pods with these requests, and return which were killed: those above their memory limit."""
        killed: Bool = use.memory > MEMORY_LIMIT * memory
        wanted = use.cores / (CPU_LIMIT * cores)
        late = np.where(killed, use.load, use.load * np.maximum(1 - 1 / wanted, 0.0))
        hours = STEP_SECONDS / 3600
        self.dollars += hours * float((DOLLARS_PER_CORE_HOUR * cores + DOLLARS_PER_GIB_HOUR * memory / GIB).sum())
        self.requests += STEP_SECONDS * float(use.load.sum())
        self.late += STEP_SECONDS * float(late.sum())
        self.killed += int(killed.sum())
        # Mean response time of processor sharing: work over the cores that are left (M/G/1-PS).
        left = np.maximum(CPU_LIMIT * cores - use.cores, 0.0)
        seconds = np.minimum(service.cores_per_rps / np.maximum(left, 1e-9), SLOWEST_SECONDS)
        self.seconds += STEP_SECONDS * float((use.load * seconds).sum())
        return killed
