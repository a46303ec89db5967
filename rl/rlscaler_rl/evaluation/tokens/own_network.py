"""A network for one token service: the earlier half of its load trains it, the third quarter chooses a checkpoint, and
the last quarter judges it against the forecast rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rlscaler_core.decision.manifest import Envelope
from rlscaler_core.decision.types import GPU, Float
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.models import load_for_tokens
from rlscaler_rl.evaluation.schema import VERDICT_FILE, Verdict
from rlscaler_rl.evaluation.tokens.compare import played, row_of
from rlscaler_rl.evaluation.tokens.contenders import ENTRIES, network
from rlscaler_rl.evaluation.tokens.load import Load, refusals_of
from rlscaler_rl.evaluation.tokens.own import START_SPREAD, OwnService
from rlscaler_rl.evaluation.tokens.result import Row, table_of
from rlscaler_rl.results.statistics import FEWEST_UNITS, ratio_interval
from rlscaler_rl.results.table import Table
from rlscaler_rl.simulation.episode import LATE_WEIGHT
from rlscaler_rl.simulation.tokens.drawn import WRONG, World
from rlscaler_rl.simulation.tokens.episode import NEEDED, TokenResult
from rlscaler_rl.training.files import write_atomically
from rlscaler_rl.training.tokens import Options, Scaled, train_on, within

LONGEST_SECONDS = 24 * 3600
"""The end of a longer history is used."""

STEPS = 1_000_000
"""Action intervals of a training, unless `--steps` says otherwise."""

SHORTEST_EPISODE, LONGEST_EPISODE = 600, 1800
"""Seconds of an episode: a third of a quarter of the history, within these bounds."""

LEAST_SHARE = 0.5
"""Share of the requests of an episode that are left at least: a service is to know quieter days as well."""

JUDGED_OFF = (0.75, 0.9, 1.1, 1.25)
"""Factors on the declared capacity with which each stretch of the last quarter is played."""

KNOWN = 0.5
"""Share of the history, from its begin on, that load tests know, as the training does."""

FEWEST_REQUESTS = 20
"""Requests of a stretch below which nothing can be said of its latencies."""

LEAST_LEAD = 0.5
"""Percent of J that the whole interval has to be below the rule's: a smaller lead is not worth a network."""


class TokenVerdict(Verdict):
    """Content of verdict.json: the figures of the last quarter, and whether the network may be published."""

    server: str
    load: str
    seconds: int
    """Length of the history."""

    episode_seconds: int
    rows: list[Row]
    """Rule and network; `j` has the part of each stretch, the mean over `JUDGED_OFF`."""

    def table(self) -> Table:
        """Return the rows for a terminal."""
        return table_of(self.rows, f"{self.name} on {self.server}, the last quarter of {self.load}")


def train_for(service: OwnService, options: Options, folder: Path, say: Callable[[str], None]) -> TokenVerdict:
    """Train a network for a service, and write policy.onnx, manifest.json and verdict.json into a folder.

    `options.seconds` is the longest episode. Raises EvaluationError for a history that is too short.
    """
    load, quarter = service.load, service.load.seconds // 4
    episode = min(quarter // FEWEST_UNITS, options.seconds, LONGEST_EPISODE) // 60 * 60
    if episode < SHORTEST_EPISODE:
        least = 4 * FEWEST_UNITS * SHORTEST_EPISODE / 3600
        raise EvaluationError(
            f"{load.label}: {load.seconds / 3600:.1f} hours of load, and {least:g} are needed: the last quarter judges "
            "the network; name a longer history, or use `rlscaler tokens train` without --for"
        )
    options = replace(options, seconds=episode)
    past, choice, last = (load.between(a * quarter, b * quarter) for a, b in ((0, 2), (2, 3), (3, 4)))
    judged = [part for n in range(quarter // episode) if _counts(part := last.between(episode * n, episode * (n + 1)))]
    if len(judged) < FEWEST_UNITS:
        raise EvaluationError(
            f"{load.label}: {len(judged)} of the last {quarter // episode} stretches of {episode / 60:g} minutes have "
            f"{FEWEST_REQUESTS} requests or more, and {FEWEST_UNITS} are needed to judge; name a busier history"
        )

    def course(number: int) -> Scaled:
        rng = np.random.default_rng([options.seed, number, 27])
        return _stretches(service, past, options.services, episode, rng)

    with refusals_of(service.server):
        others = _stretches(service, choice, options.looked_at, episode, np.random.default_rng([options.seed, 28]))
        train_on(course, others, envelope(service), options, folder, f"{service.namespace}-{service.name}", say)
        verdict = _judged(service, judged, folder)
    write_atomically(folder / VERDICT_FILE, verdict.json_text() + "\n")
    return verdict


def _counts(stretch: Load) -> bool:
    return len(stretch.requests.arrived) >= FEWEST_REQUESTS


def envelope(service: OwnService) -> Envelope:
    """Return the envelope of a network for one service."""
    params = service.params
    slo, cold = float(params.slo_ms[0]), float(params.cold_start_seconds[0, GPU])
    most, interval = float(params.max_replicas[0, GPU]), float(params.interval_seconds[0])
    starts = (1 - START_SPREAD) * cold, (1 + START_SPREAD) * cold
    return within((slo, slo), starts, (most, most), (interval, interval))


def _stretches(service: OwnService, part: Load, count: int, seconds: int, rng: np.random.Generator) -> Scaled:
    """Return the service on so many stretches of a part of its load, with requests left out and wrong declarations."""
    arrived, begins = part.requests.arrived, rng.integers(0, part.seconds - seconds, 20 * count, endpoint=True)
    busy = np.searchsorted(arrived, begins + seconds) - np.searchsorted(arrived, begins) >= FEWEST_REQUESTS
    if busy.sum() < count:
        raise EvaluationError(
            f"{part.label}: fewer than {FEWEST_REQUESTS} requests in most stretches of {seconds / 60:g} minutes of a "
            "part of it; name a busier history"
        )
    parts = []
    for begin in begins[busy][:count].tolist():
        stretch, share = part.between(begin, begin + seconds), rng.uniform(LEAST_SHARE, 1.0)
        parts.append(stretch.of(rng.random(len(stretch.requests.arrived)) < share))
    off = np.exp(rng.uniform(np.log(1 - WRONG), np.log(1 + WRONG), count))
    return Scaled(service.world(parts, int(rng.integers(1 << 30))), service.policies(off))


def _judged(service: OwnService, stretches: Sequence[Load], folder: Path) -> TokenVerdict:
    """Play rule and network on each stretch of the last quarter, with declarations that are off."""
    count, seconds = len(stretches), stretches[0].seconds
    world = service.world([part for part in stretches for _ in JUDGED_OFF], seed=29)
    params = service.policies(np.tile(JUDGED_OFF, count))
    loaded = load_for_tokens(str(folder))
    results, rows, j = [], [], []
    for entry in (ENTRIES[0], network(loaded)):
        results.append(played(entry, [entry.tunable.default], world, params))
        j.append(_parts_of_j(results[-1], world, count))
        row = row_of(entry, {}, results[-1], results[0], world.seconds)
        rows.append(row.model_copy(update={"j": j[-1].round(3).tolist()}))
    behind = ratio_interval(_units(j[1]), _units(j[0]))
    rows[1] = rows[1].model_copy(update={"behind": behind.shown(unit=" %")})
    publish = behind.high < -LEAST_LEAD
    finding = "ahead of the rule" if publish else f"not shown to be {LEAST_LEAD:g} % ahead of the rule"
    where = f"the last {count} stretches of {seconds / 60:g} minutes"
    return TokenVerdict(
        publish=publish,
        reasons=(f"{finding} on {where}, and on no others: J {behind.shown(unit=' %')}",),
        policy_digest=loaded.digest,
        name=service.name,
        namespace=service.namespace,
        server=service.server.label,
        load=service.load.label,
        seconds=service.load.seconds,
        episode_seconds=seconds,
        rows=rows,
    )


def _parts_of_j(result: TokenResult, world: World, count: int) -> Float:
    """Return the parts (count,) that stretches add to the J of all: their mean is that J.

    A mean of the J of stretches would weigh a quiet one, whose need is small, as much as ten busy ones.
    """
    need = np.add.reduceat(world.requests.need, world.requests.first[:-1])
    cost = NEEDED * result.over_need * need / need.mean()
    late = LATE_WEIGHT * result.late_percent * result.requests / result.requests.mean()
    return np.asarray((cost + late).reshape(count, -1).mean(axis=1), np.float64)


def _units(j: Float) -> Float:
    """Return the means of neighbours, as many as there are pairs: one surge may reach into two stretches."""
    pairs = max(len(j) // 2, FEWEST_UNITS)
    return np.array([part.mean() for part in np.array_split(j, pairs)])
