"""Consumer groups of a topic: everything fixed before an episode begins, with the messages and the cold starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlscaler_core.decision.types import Float, Float32, Int, Rows
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.streams.protocols import NAMES, SESSION_SECONDS

STEP_SECONDS = 0.5
"""Messages move as volumes in steps of this length; a stop that is shorter takes its share of the step."""

KEYS = 1000
"""Keys of the messages, as `rlscaler load produce` draws them."""

DRAWS = 1024
"""Numbers that are drawn for each group and each purpose; an episode that needs more begins with the first again."""


@dataclass(slots=True)
class Groups(Rows):
    """One row per group and episode. All rows have as many columns of partitions; where there are fewer, share is 0."""

    seed: Int  # (N,)
    protocol: Int  # (N,) index into `protocols.PROTOCOLS`
    partitions: Int  # (N,)
    share: Float  # (N, P) of the messages that each partition gets; a row adds up to 1
    arrivals: Float32  # (N, P, T) messages that are written in each step of `STEP_SECONDS`
    rate: Float  # (N,) messages/s that one consumer can process
    coherency: Float  # (N,) by how much pairs of consumers slow one another down, as in `rate_beside`
    batch: Float  # (N,) messages that a consumer takes at once; it takes part in a rebalance between two batches
    commit_seconds: Float  # (N,) between two commits
    session_seconds: Float  # (N,) after which a member that went without a word is taken to be gone
    unclean: Float  # (N,) share of the consumers that go without a word, 0 to 1
    cold_start_low: Float  # (N,) seconds from a pod being ordered to its consumer starting, drawn uniformly
    cold_start_high: Float  # (N,)
    initial: Int  # (N,) consumers at the begin, all of them members that have come to rest
    min_replicas: Int  # (N,)
    max_replicas: Int  # (N,)
    slo_seconds: Float  # (N,) how long a message may wait
    drawn: Float  # (N, 3, DRAWS) uniform in [0, 1): cold starts, moments within batches, who goes without a word

    @property
    def steps(self) -> int:
        return self.arrivals.shape[2]

    @property
    def seconds(self) -> float:
        return self.steps * STEP_SECONDS

    def messages(self) -> Float:
        """(N,) that are written in all."""
        return np.asarray(self.arrivals.sum(axis=(1, 2), dtype=np.float64))

    def rate_beside(self, readers: Int) -> Float:
        """(N,) messages/s that one of so many `readers` (N,) processes.

        The coherency term of the Universal Scalability Law (Gunther, Guerrilla Capacity Planning, 2007): consumers that
        share a database wait for one another in pairs, so that beyond some number all together process less.
        """
        return np.asarray(self.rate / (1 + self.coherency * readers * np.maximum(readers - 1, 0)))


COLD_STARTS, MOMENTS, FAREWELLS = range(3)
"""Columns of `Groups.drawn`."""

NOMINAL: dict[str, Any] = {
    "protocol": "cooperative-sticky",
    "partitions": 12,
    "rate": 100.0,
    "coherency": 0.0,
    "batch": 10.0,
    "commit_seconds": 1.0,
    "session_seconds": SESSION_SECONDS,
    "unclean": 0.0,
    "cold_start_low": 5.0,
    "cold_start_high": 11.0,
    "initial": 1,
    "min_replicas": 1,
    "max_replicas": 12,
    "slo_seconds": 10.0,
}
"""The consumers of `rlscaler demo kafka`."""


def shares_of(partitions: int, skew: float, rng: np.random.Generator) -> Float:
    """(partitions,) share of each partition, where key k of `KEYS` is drawn in proportion to 1 / k^skew.

    Each key has a partition that does not depend on how often it is drawn.
    """
    weights = 1.0 / np.arange(1, KEYS + 1) ** skew
    shares = np.bincount(rng.integers(partitions, size=KEYS), weights, minlength=partitions)
    return np.asarray(shares / shares.sum())


def groups(load: ArrayLike, seeds: ArrayLike, *, skew: float = 0.0, **columns: Any) -> Groups:
    """Groups under a `load` (N, T) in messages/s of each second, one for each of `seeds` (N,).

    `columns` are those of `Groups` over `NOMINAL`, one value or one for each row; `protocol` is a name of
    `protocols.NAMES` or several. Equal seeds give equal messages, shares and cold starts. Raises ScenarioError that
    names the column and the remedy.
    """
    table = np.atleast_2d(np.asarray(load, dtype=np.float64))
    seed = np.broadcast_to(np.asarray(seeds, dtype=np.int32), (len(table),)).copy()
    if not np.all(np.isfinite(table)) or np.any(table < 0):
        raise ScenarioError("load: messages/s must be finite and not negative; cut or fill the gaps of the load")
    given = {**NOMINAL, **columns}
    partitions = _row("partitions", given["partitions"], len(table), np.int32)
    if np.any(partitions < 1):
        raise ScenarioError(f"partitions = {partitions.min()}: a topic has at least 1")
    draws = [np.random.default_rng([int(number), 5]) for number in seed]
    share = np.zeros((len(table), int(partitions.max())))
    for row, (number, rng) in enumerate(zip(partitions.tolist(), draws, strict=True)):
        share[row, :number] = shares_of(number, skew, rng)
    steps = np.repeat(table, round(1 / STEP_SECONDS), axis=1) * STEP_SECONDS
    arrivals = [rng.poisson(part[:, None] * mean) for rng, part, mean in zip(draws, share, steps, strict=True)]
    return given_messages(np.stack(arrivals), share, seed, given | {"partitions": partitions})


def given_messages(arrivals: NDArray[Any], share: Float, seed: Int, columns: dict[str, Any]) -> Groups:
    """Groups that meet these messages: arrivals (N, P, T) in each step, share (N, P), seed (N,).

    Raises ScenarioError as `groups` does.
    """
    n = len(arrivals)
    given = {**NOMINAL, **columns}
    protocol = np.broadcast_to(np.asarray(given["protocol"]), (n,))
    if unknown := sorted(set(protocol.tolist()) - set(NAMES)):
        raise ScenarioError(f"protocol = {', '.join(map(str, unknown))}: choose from {', '.join(NAMES)}")
    values = {
        name: _row(name, given[name], n, np.int32 if isinstance(NOMINAL[name], int) else np.float64)
        for name in NOMINAL
        if name != "protocol"
    }
    drawn = np.stack([np.random.default_rng([int(number), 6]).random((3, DRAWS)) for number in seed])
    groups = Groups(
        seed=seed,
        protocol=np.array([NAMES.index(name) for name in protocol.tolist()], np.int32),
        share=share,
        arrivals=arrivals.astype(np.float32),
        drawn=drawn,
        **values,
    )
    return _checked(groups)


def _row(name: str, value: Any, n: int, kind: Any) -> NDArray[Any]:
    try:
        return np.broadcast_to(np.asarray(value, dtype=kind), (n,)).copy()
    except ValueError as error:
        raise ScenarioError(f"{name}: one value or {n} are needed, got {value!r}") from error


def _checked(groups: Groups) -> Groups:
    """The groups, or ScenarioError naming the first column that cannot be simulated and the remedy."""
    checks = (
        ("rate", groups.rate > 0, "messages/s of a consumer must be positive"),
        ("coherency", groups.coherency >= 0, "must not be negative"),
        ("batch", groups.batch >= 1, "a consumer takes at least 1 message at once"),
        ("commit_seconds", groups.commit_seconds > 0, "must be positive"),
        ("session_seconds", groups.session_seconds > 0, "must be positive"),
        ("unclean", (groups.unclean >= 0) & (groups.unclean <= 1), "a share from 0 to 1"),
        ("cold_start_low", groups.cold_start_low >= 0, "must not be negative"),
        ("cold_start_high", groups.cold_start_high >= groups.cold_start_low, "must not be below cold_start_low"),
        ("min_replicas", groups.min_replicas >= 1, "a group has at least 1 consumer"),
        ("max_replicas", groups.max_replicas >= groups.min_replicas, "must not be below min_replicas"),
        ("initial", (groups.initial >= 1) & (groups.initial <= groups.max_replicas), "from 1 to max_replicas"),
        ("slo_seconds", groups.slo_seconds > 0, "must be positive"),
    )
    for name, good, remedy in checks:
        if not np.all(good):
            row = int(np.flatnonzero(~np.asarray(good))[0])
            raise ScenarioError(f"group {row}: {name} = {getattr(groups, name)[row]}: {remedy}")
    return groups
