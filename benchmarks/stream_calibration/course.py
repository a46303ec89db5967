"""What is played on the broker and in the simulator alike: a step of load, and two changes of consumers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_loadgen.streams.member import PROTOCOLS, Protocols

PARTITIONS = 12
MESSAGE_SECONDS = 0.02
"""Work on a message: a consumer processes 50 a second."""

SECONDS = 70
LOAD_CHANGES = (10, 48)
"""Seconds at which the load goes to its second level, and back."""

CHANGES = (22.0, 52.0)
"""Seconds at which the consumers go to their second number, and back."""

BATCHES = {"short": 5, "long": 100}
"""Messages that a consumer takes at once: 0.1 s and 2 s of work."""

SIZES = ((2, 4), (4, 8), (6, 8), (8, 4))


@dataclass(frozen=True, slots=True)
class Course:
    """One group from its first message to its last."""

    protocol: Protocols
    batch: str
    first: int
    second: int
    """Consumers before and after the first change."""

    repeat: int = 0

    @property
    def name(self) -> str:
        return f"{self.protocol}-{self.batch}-{self.first}-{self.second}-{self.repeat}"

    @property
    def sizes(self) -> str:
        return f"{self.first}-{self.second}-{self.first}"

    @property
    def fitted(self) -> bool:
        """Whether the simulator's constants may be chosen by it; the other half judges them.

        Each half has every protocol, size and batch.
        """
        return (SIZES.index((self.first, self.second)) + (self.batch == "long") + self.repeat) % 2 == 0

    @property
    def seed(self) -> int:
        return 10 * SIZES.index((self.first, self.second)) + self.repeat

    def rate(self) -> Float:
        """(SECONDS,) messages/s: few consumers are loaded to 60 %, many to 75 %, each at its time."""
        fewer = min(self.first, self.second)
        loads = [(0.6 if n == fewer else 0.75) * _capacity(n) for n in (self.first, self.second)]
        rates = np.full(SECONDS, loads[0])
        rates[slice(*LOAD_CHANGES)] = loads[1]
        return rates


def _capacity(consumers: int) -> float:
    """Messages/s at which the busiest consumer is full."""
    return PARTITIONS / -(-PARTITIONS // consumers) / MESSAGE_SECONDS


def courses(repeats: int) -> list[Course]:
    """All courses, those that are played at the same time beside one another: of every protocol alike."""
    return [
        Course(protocol, batch, *size, repeat)
        for repeat in range(repeats)
        for size in SIZES
        for batch in BATCHES
        for protocol in PROTOCOLS
    ]
