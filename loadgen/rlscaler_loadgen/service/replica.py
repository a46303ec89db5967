"""One emulated replica: a FIFO queue in front of `concurrency` servers. Time is waited, not burnt.

The replica keeps its own account of time: a request that waited begins at the moment at which the one before
it was due to end, not when the event loop came round to it. A busy machine therefore delays answers a little
but does not take capacity away.
"""

from __future__ import annotations

import asyncio
from collections import deque
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


@dataclass
class Slowdown:
    """Service times multiplied by `factor`, from `after` seconds behind the first request on."""

    factor: float = 1.0
    after: float = 0.0
    _first: float | None = field(default=None, init=False, repr=False)

    def at(self, time: float) -> float:
        """Return the factor of a request that arrives at `time` seconds of the event loop."""
        if self._first is None:
            self._first = time
        return self.factor if time - self._first >= self.after else 1.0


class QueueFullError(Exception):
    """The replica's queue is full: answer 503."""


class ReplicaGoneError(Exception):
    """The pod was deleted before it began the request: route it elsewhere."""


@dataclass(eq=False)
class Job:
    """One request at one replica. Await `done`; it yields (waited, served) in seconds."""

    factor: float  # service time as a multiple of the flavour's mean
    arrived: float
    done: asyncio.Future[tuple[float, float]]
    begun: float | None = None


@dataclass(eq=False)
class Replica:
    """The queue and the servers of one ready pod, on the running event loop's clock."""

    name: str
    flavour: Flavour
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _waiting: deque[Job] = field(default_factory=deque)
    _serving: set[Job] = field(default_factory=set)
    _busy_seconds: float = 0.0  # of requests that have ended

    @property
    def load(self) -> int:
        """Requests here: waiting and being worked on."""
        return len(self._waiting) + len(self._serving)

    @property
    def full(self) -> bool:
        return len(self._serving) >= self.flavour.concurrency and len(self._waiting) >= self.flavour.queue

    def busy_seconds(self, now: float | None = None) -> float:
        """Seconds its servers have worked since it began, begun requests included; never falls."""
        time = self.loop.time() if now is None else now
        return self._busy_seconds + sum(
            min(max(0.0, time - job.begun), self._service_seconds(job))
            for job in self._serving
            if job.begun is not None
        )

    def submit(self, factor: float) -> Job:
        """Queue one request; raises QueueFullError. Cancel it with `abandon`."""
        if self.full:
            raise QueueFullError(self.name)
        now = self.loop.time()
        job = Job(factor, now, self.loop.create_future())
        if len(self._serving) < self.flavour.concurrency:
            self._begin(job, now)
        else:
            self._waiting.append(job)
        return job

    def abandon(self, job: Job) -> None:
        """The client is gone: forget the request if it still waits; one that was begun is worked on to its end."""
        if job.begun is None and job in self._waiting:
            self._waiting.remove(job)
        job.done.cancel()

    def evict(self) -> None:
        """Terminate the pod: hand back waiting requests (ReplicaGoneError), let requests in service end."""
        while self._waiting:
            job = self._waiting.popleft()
            if not job.done.done():
                job.done.set_exception(ReplicaGoneError(self.name))

    def _service_seconds(self, job: Job) -> float:
        return job.factor * self.flavour.mean_seconds

    def _begin(self, job: Job, at: float) -> None:
        job.begun = at
        self._serving.add(job)
        self.loop.call_at(at + self._service_seconds(job), self._end, job, at)

    def _end(self, job: Job, begun: float) -> None:
        served = self._service_seconds(job)
        self._serving.discard(job)
        self._busy_seconds += served
        if not job.done.done():
            job.done.set_result((begun - job.arrived, served))
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done.done():
                self._begin(following, max(begun + served, following.arrived))
                return
