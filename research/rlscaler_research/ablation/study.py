"""What each part of the training is worth: ideas that are tried, their training runs, the results, and the table.

Every idea is one change of the default configuration, trained at a fraction of its length with every seed and scored on
the tune parts. What was measured is kept in results.json.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from rlscaler_rl.training.config import TrainingConfig
from rlscaler_rl.training.files import write_atomically

BASE = "default"
SCREENING_STEPS = 1_500_000
NEVER = 1_000_000_000
"""Episodes between two checkpoints or evaluations: a screening run has none but the last."""

RESULTS = Path(__file__).parent / "results.json"
Record = dict[str, Any]

DRAWN = 64
"""Episodes of the training distribution that the probe looks at."""

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Idea:
    """What is different from the default."""

    what: str
    environment: Mapping[str, Any] = field(default_factory=dict)
    agent: Mapping[str, Any] = field(default_factory=dict)

    def config(self, seed: int, steps: int = SCREENING_STEPS) -> TrainingConfig:
        run = {"seed": seed, "steps": steps, "checkpoint_episodes": NEVER, "evaluation_episodes": NEVER}
        return TrainingConfig.model_validate({"environment": dict(self.environment), "agent": dict(self.agent) | run})


IDEAS = {
    BASE: Idea("the configuration of the bundled policy"),
    "no-imitation": Idea("PPO from an actor that changes nothing", agent={"imitation_rounds": 0}),
    "stack-4": Idea("4 observations instead of 12", environment={"stack_size": 4}),
    "stack-20": Idea("20 observations", environment={"stack_size": 20}),
    "plain": Idea("the action is added to the present replicas, not to the rule's", environment={"residual": False}),
    "symmetric-critic": Idea("the critic sees no more than the actor", environment={"asymmetric": False}),
    "no-traces": Idea("no recorded loads in training", environment={"trace_share": 0.0}),
    "no-nominal": Idea("no episodes of the wholly nominal service", environment={"wholly_nominal_share": 0.0}),
    "all-nominal": Idea(
        "the nominal service alone: what the envelope costs",
        environment={"wholly_nominal_share": 1.0, "one_pool_share": 0.0},
    ),
    "interval-15": Idea("an action every 15 s only", environment={"action_interval": 15}),
    "interval-30": Idea("an action every 30 s only", environment={"action_interval": 30}),
    "episodes-600": Idea("episodes of 600 s only", environment={"episode_duration": 600}),
    "gamma-0.90": Idea("discount 0.90 instead of 0.95", agent={"gamma": 0.90}),
    "gamma-0.97": Idea("discount 0.97", agent={"gamma": 0.97}),
    "lr-3e-3": Idea("learning rate 3e-3 instead of 8e-4", agent={"learning_rate": 3e-3}),
    "lr-5e-4": Idea("learning rate 5e-4", agent={"learning_rate": 5e-4}),
    "entropy-0.01": Idea("entropy bonus 0.01 instead of 0.004", agent={"entropy": 0.01}),
    "batch-1024": Idea("minibatches of 1,024 instead of 3,072", agent={"batch_size": 1024}),
    "batch-6144": Idea("minibatches of 6,144", agent={"batch_size": 6144}),
    "epochs-8": Idea("8 passes over a rollout instead of 3", agent={"ppo_epochs": 8}),
    "units-64": Idea("64 units a layer instead of 128", agent={"hidden_size": 64, "critic_hidden_size": 64}),
    "units-256": Idea("256 units a layer", agent={"hidden_size": 256, "critic_hidden_size": 256}),
}


@dataclass(frozen=True, slots=True)
class IdeaRun:
    """One training run; plain values, so that it can be sent to another machine."""

    idea: str
    seed: int
    steps: int = SCREENING_STEPS

    @property
    def config(self) -> TrainingConfig:
        return IDEAS[self.idea].config(self.seed, self.steps)

    @property
    def key(self) -> str:
        """Digest of the whole configuration: a changed default makes every idea a new one."""
        return hashlib.sha256(self.config.model_dump_json().encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def probe() -> str:
    """A digest of what the meter says of a fixed rule on the tune parts, and of what training draws: results of
    another meter or of other episodes do not compare."""
    from rlscaler_core.models import load_bundled
    from rlscaler_rl.simulation.episode import run
    from rlscaler_rl.simulation.randomisation import randomised
    from rlscaler_rl.training.validation import CONDITIONS, scenarios

    found = hashlib.sha256()
    result = run(scenarios(*CONDITIONS[0]), load_bundled("rule")).result
    found.update(np.round(np.stack([result.cost, result.late_percent]), 4).tobytes())
    drawn = randomised(DRAWN, np.random.default_rng(0), 30.0, 600)
    for column in (drawn.rate, drawn.initial, drawn.rps, drawn.min_replicas, drawn.target_utilization):
        found.update(np.round(column, 4).tobytes())
    return found.hexdigest()[:16]


def train_and_score(one: IdeaRun) -> Record:
    """The run's last validation: means and the figures of every workload, never the best of several looks.

    A run that fails leaves its folder, which its message names.
    """
    from rlscaler_rl.training.train import train

    began = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="rlscaler-ablation-"))
    folder = train(one.config, scratch / "run", progress=False)
    rows = json.loads((folder / "training_progress.json").read_text(encoding="utf-8"))
    shutil.rmtree(scratch)
    last = rows[-1]["validation"]
    return {
        "idea": one.idea,
        "seed": one.seed,
        "steps": rows[-1]["steps"],
        "key": one.key,
        "probe": probe(),
        "seconds": round(time.monotonic() - began),
        "mean": _rounded(last["mean"]),
        "workloads": {name: _rounded(figures) for name, figures in last["workloads"].items()},
    }


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in figures.items()}


def read(path: Path = RESULTS) -> list[Record]:
    """All that was kept, of whatever meter and default."""
    return list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


def current(records: Sequence[Record], runs: Sequence[IdeaRun]) -> dict[IdeaRun, Record]:
    """The records that hold for today's configuration and meter."""
    found = {(record["key"], record["probe"]): record for record in records}
    return {one: found[one.key, probe()] for one in runs if (one.key, probe()) in found}


def study(
    runs: Sequence[IdeaRun], address: str | None, workers: int, say: Callable[[Record], None], path: Path = RESULTS
) -> dict[IdeaRun, Record]:
    """Run what has no current record; each result is kept as soon as it is there."""
    from rlscaler_rl.training.distributed import map_runs

    records = read(path)
    missing = [one for one in runs if one not in current(records, runs)]
    for record in map_runs(train_and_score, missing, address, workers=workers) if missing else ():
        keep([*read(path), record], path)
        say(record)
    return current(read(path), runs)


def keep(records: Sequence[Record], path: Path = RESULTS) -> None:
    """One line a record, so that changes can be read."""
    lines = ",\n".join(json.dumps(record) for record in sorted(records, key=_order))
    write_atomically(path, f"[\n{lines}\n]\n")


def _order(record: Record) -> tuple[bool, str, int, int, str]:
    return record["idea"] != BASE, record["idea"], record["steps"], record["seed"], record["key"] + record["probe"]


@dataclass(frozen=True, slots=True)
class Line:
    """Mean J over the workloads of an idea, and its difference from the default; NaN where seeds are too few."""

    idea: str
    seeds: int
    j: float
    deviation: float
    difference: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        if self.idea == BASE or not np.isfinite(self.low):
            return ""
        return "better" if self.high < 0 else "worse" if self.low > 0 else "undecided"


def lines(results: Mapping[IdeaRun, Record]) -> list[Line]:
    """Best first. Differences are paired by seed and get a t interval, as seeds are few."""
    scores: dict[str, dict[int, float]] = {}
    for one, record in results.items():
        scores.setdefault(one.idea, {})[one.seed] = record["mean"]["j"]
    made = [_line(idea, found, scores.get(BASE, {})) for idea, found in scores.items()]
    return sorted(made, key=lambda line: line.j)


def _line(idea: str, found: dict[int, float], base: dict[int, float]) -> Line:
    values = np.array(list(found.values()))
    paired = np.array([found[seed] - base[seed] for seed in found if seed in base])
    low = high = float("nan")
    if idea != BASE and len(paired) > 1:
        half = stats.t.ppf((1 + CONFIDENCE) / 2, len(paired) - 1) * stats.sem(paired)
        low, high = float(paired.mean() - half), float(paired.mean() + half)
    return Line(
        idea=idea,
        seeds=len(values),
        j=float(values.mean()),
        deviation=float(values.std(ddof=1)) if len(values) > 1 else float("nan"),
        difference=float(paired.mean()) if len(paired) else float("nan"),
        low=low,
        high=high,
    )


def markdown(made: list[Line]) -> str:
    """The table as it stands in the documentation."""
    rows = ["| idea | what is different | seeds | J | against the default | |", "|---|---|---|---|---|---|"]
    for line in made:
        spread = "" if np.isnan(line.deviation) else f" ± {line.deviation:.2f}"
        against = "" if line.idea == BASE else f"{line.difference:+.2f}"
        against += "" if np.isnan(line.low) else f" [{line.low:+.2f}, {line.high:+.2f}]"
        what = IDEAS[line.idea].what
        rows.append(f"| {line.idea} | {what} | {line.seeds} | {line.j:.2f}{spread} | {against} | {line.verdict} |")
    return "\n".join(rows)
