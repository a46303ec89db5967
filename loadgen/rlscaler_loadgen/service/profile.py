"""What one replica of a flavour can do, and the random numbers behind its service times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

POOLS = ("gpu", "cpu")


@dataclass(frozen=True)
class Flavour:
    """One replica: its service time, how many requests it works on at once, and its queue.

    The defaults are the nominal service of the project: 20 and 4 requests/s a replica.
    """

    name: str
    mean_seconds: float  # mean service time of one request
    concurrency: int = 1
    queue: int = 64  # requests that may wait; one more is answered 503
    cpu_request: float = 1.0  # cores, where the pod requests none
    memory_request: float = 2**30  # bytes, where the pod requests none
    cpu_share: float = 1.0  # CPU used by a fully busy replica, as part of its request

    @property
    def requests_per_second(self) -> float:
        return self.concurrency / self.mean_seconds


GPU = Flavour("gpu", mean_seconds=0.05, cpu_request=4.0, memory_request=16 * 2**30, cpu_share=0.2)
CPU = Flavour("cpu", mean_seconds=0.25, cpu_request=4.0, memory_request=4 * 2**30)
FLAVOURS = {"gpu": GPU, "cpu": CPU}


@dataclass
class ServiceTimes:
    """An endless, seeded stream of lognormal factors with mean 1.

    One stream for the whole service: the i-th request that arrives gets the i-th factor whichever replica it
    goes to, so that two runs on one seed meet equally heavy requests.
    """

    seed: int
    variation: float = 0.5
    _stream: Iterator[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._stream = self._draw()

    def __next__(self) -> float:
        return next(self._stream)

    def _draw(self) -> Iterator[float]:
        rng = np.random.default_rng(self.seed)
        sigma = float(np.sqrt(np.log1p(self.variation**2)))
        while True:
            yield from rng.lognormal(-sigma * sigma / 2, sigma, 4096).tolist()
