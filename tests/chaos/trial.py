"""One service under one fault: what its replicas were before, how low they went, and when they followed the load."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from tests.harness.load import Load
from tests.harness.replicas import Replicas, capacity, described
from tests.harness.waiting import looks, until
from tests.harness.world import World

CALM, BUSY = 60.0, 150.0
"""Requests per second before and during a fault: a fault must not keep the service at what it was for long."""


class Reported(Protocol):
    """What a trial fills in."""

    recovered_seconds: float | None
    lowest: str
    allowed: str


@dataclass
class Trial:
    """Begins once the service is settled."""

    world: World
    replicas: Replicas
    service: str
    load: Load
    line: Reported
    before: tuple[int, int] = (0, 0)
    begun: float = field(default_factory=time.monotonic)

    @classmethod
    def settled(cls, world: World, replicas: Replicas, load: Load, line: Reported, seconds: float = 90.0) -> Trial:
        """The policy is Ready and its replicas carry the load."""
        service = load.service
        until(lambda: world.condition(service, "Ready")[0] == "True", seconds)
        until(lambda: capacity(replicas.now(service)) >= load.rate, seconds)
        return cls(world, replicas, service, load, line, replicas.now(service))

    def followed(self, rate: float, seconds: float = 90.0) -> float:
        """How long from now until the replicas carry `rate`; the load is set to it where it is not that yet."""
        if self.load.rate != rate:
            self.load.rate = rate
        for elapsed in looks(seconds, 0.1):
            if capacity(self.replicas.now(self.service)) >= rate:
                return elapsed
        raise AssertionError(f"{self.replicas.now(self.service)} replicas do not carry {rate:g} req/s in {seconds:g} s")

    def check(self, recovered: float | None = None, allowed: float | None = None) -> None:
        """Capacity never fell below what it was when the trial began, or `allowed` requests per second."""
        weakest = self.replicas.weakest(self.service, self.begun)
        self.line.recovered_seconds = recovered
        self.line.lowest = described(weakest)
        self.line.allowed = described(self.before) if allowed is None else f"{allowed:g} req/s"
        least = capacity(self.before) if allowed is None else allowed
        assert capacity(weakest) >= least, self.replicas.of(self.service, self.begun)
