"""A network for one token service: the earlier half of its load trains it, the third quarter chooses a checkpoint, and
the last quarter judges it against the forecast rule."""

from __future__ import annotations

from collections.abc import Callable
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
from rlscaler_rl.evaluation.tokens.result import COLUMNS, Row
from rlscaler_rl.results.statistics import FEWEST_UNITS, ratio_interval
from rlscaler_rl.results.table import Table
from rlscaler_rl.simulation.tokens.drawn import WRONG
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


class TokenVerdict(Verdict):
    """Content of verdict.json: the figures of the last quarter, and whether the network may be published."""

    server: str
    load: str
    seconds: int
    """Length of the history."""

    episode_seconds: int
    rows: list[Row]
    """Rule and network; J of each stretch is the mean over `JUDGED_OFF`."""

    def table(self) -> Table:
        """Return the rows for a terminal."""
        title = f"{self.name} on {self.server}, the last quarter of {self.load}"
        columns = {name: text for name, text in COLUMNS.items() if name != "cost a month"}
        return Table.of(columns, self.rows, title)


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
    past, choice = load.between(0, 2 * quarter), load.between(2 * quarter, 3 * quarter)

    def course(number: int) -> Scaled:
        rng = np.random.default_rng([options.seed, number, 27])
        return _stretches(service, past, options.services, episode, rng)

    with refusals_of(service.server):
        others = _stretches(service, choice, options.looked_at, episode, np.random.default_rng([options.seed, 28]))
        train_on(course, others, envelope(service), options, folder, f"{service.namespace}-{service.name}", say)
        verdict = _judged(service, load.between(3 * quarter, 4 * quarter), episode, folder)
    write_atomically(folder / VERDICT_FILE, verdict.json_text() + "\n")
    return verdict


def envelope(service: OwnService) -> Envelope:
    """Return the envelope of a network for one service."""
    params = service.params
    slo, cold = float(params.slo_ms[0]), float(params.cold_start_seconds[0, GPU])
    most, interval = float(params.max_replicas[0, GPU]), float(params.interval_seconds[0])
    starts = (1 - START_SPREAD) * cold, (1 + START_SPREAD) * cold
    return within((slo, slo), starts, (most, most), (interval, interval))


def _stretches(service: OwnService, part: Load, count: int, seconds: int, rng: np.random.Generator) -> Scaled:
    """Return the service on so many stretches of a part of its load, with requests left out and wrong declarations."""
    begins = rng.integers(0, part.seconds - seconds, count, endpoint=True)
    parts = []
    for begin in begins.tolist():
        stretch, share = part.between(begin, begin + seconds), rng.uniform(LEAST_SHARE, 1.0)
        parts.append(stretch.of(rng.random(len(stretch.requests.arrived)) < share))
    off = np.exp(rng.uniform(np.log(1 - WRONG), np.log(1 + WRONG), count))
    return Scaled(service.world(parts, int(rng.integers(1 << 30))), service.policies(off))


def _judged(service: OwnService, part: Load, episode: int, folder: Path) -> TokenVerdict:
    """Play rule and network on each stretch of the last quarter, with declarations that are off."""
    count = part.seconds // episode
    parts = [part.between(episode * n, episode * (n + 1)) for n in range(count) for _ in JUDGED_OFF]
    world, params = service.world(parts, seed=29), service.policies(np.tile(JUDGED_OFF, count))
    loaded = load_for_tokens(str(folder))
    results, rows = [], []
    for entry in (ENTRIES[0], network(loaded)):
        results.append(played(entry, [entry.tunable.default], world, params))
        row = row_of(entry, {}, results[-1], results[0], world.seconds)
        rows.append(row.model_copy(update={"j": _by_stretch(results[-1].j, count).round(3).tolist()}))
    behind = ratio_interval(*(_by_stretch(result.j, count) for result in results[::-1]))
    rows[1] = rows[1].model_copy(update={"behind": behind.shown(unit=" %")})
    publish = behind.high < 0
    finding = "ahead of the rule" if publish else "not shown to be ahead of the rule"
    return TokenVerdict(
        publish=publish,
        reasons=(f"{finding} on {count} stretches of {episode / 60:g} minutes: J {behind.shown(unit=' %')}",),
        policy_digest=loaded.digest,
        name=service.name,
        namespace=service.namespace,
        server=service.server.label,
        load=service.load.label,
        seconds=service.load.seconds,
        episode_seconds=episode,
        rows=rows,
    )


def _by_stretch(j: Float, count: int) -> Float:
    """Return the mean J (count,) of each stretch."""
    return np.asarray(j.reshape(count, -1).mean(axis=1), np.float64)
