"""Train every idea with every seed, score it on the tune parts, and keep what came out."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rlscaler_research.ablation.ideas import BASE, IDEAS, SCREENING_STEPS
from rlscaler_rl.training.config import TrainingConfig
from rlscaler_rl.training.files import write_atomically

RESULTS = Path(__file__).parent / "results.json"
Record = dict[str, Any]

DRAWN = 64
"""Episodes of the training distribution that the probe looks at."""


@dataclass(frozen=True, slots=True)
class Job:
    """One training run; plain values, so that it can be sent to another machine."""

    idea: str
    seed: int
    steps: int = SCREENING_STEPS

    @property
    def config(self) -> TrainingConfig:
        return IDEAS[self.idea].config(self.seed, self.steps)

    @property
    def key(self) -> str:
        """Of the whole configuration: a changed default makes every idea a new one."""
        return hashlib.sha256(self.config.model_dump_json().encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def probe() -> str:
    """A digest of what the meter says of a fixed rule on the tune parts, and of what training draws: results of
    another meter or of other episodes do not compare."""
    from rlscaler_core.decision.actor import load_bundled
    from rlscaler_rl.simulation.episode import run
    from rlscaler_rl.simulation.randomisation import randomised
    from rlscaler_rl.training.validation import SETTINGS, scenarios

    found = hashlib.sha256()
    for setting in SETTINGS:
        result = run(scenarios(*setting), load_bundled("rule")).result
        found.update(np.round(np.stack([result.cost, result.late_percent]), 4).tobytes())
    drawn = randomised(DRAWN, np.random.default_rng(0), 30.0, 600)
    for column in (drawn.rate, drawn.initial, drawn.rps, drawn.min_replicas, drawn.target_utilization):
        found.update(np.round(column, 4).tobytes())
    return found.hexdigest()[:16]


def train_and_score(job: Job) -> Record:
    """The run's last validation: means and the figures of every workload, never the best of several looks.

    A run that fails leaves its folder, which its message names.
    """
    from rlscaler_rl.training.train import train

    began = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="rlscaler-ablation-"))
    folder = train(job.config, scratch / "run", progress=False)
    rows = json.loads((folder / "training_progress.json").read_text(encoding="utf-8"))
    shutil.rmtree(scratch)
    last = rows[-1]["validation"]
    return {
        "idea": job.idea,
        "seed": job.seed,
        "steps": rows[-1]["steps"],
        "key": job.key,
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


def current(records: Sequence[Record], jobs: Sequence[Job]) -> dict[Job, Record]:
    """The records that hold for today's configuration and meter."""
    found = {(record["key"], record["probe"]): record for record in records}
    return {job: found[job.key, probe()] for job in jobs if (job.key, probe()) in found}


def study(
    jobs: Sequence[Job], address: str | None, workers: int, say: Callable[[Record], None], path: Path = RESULTS
) -> dict[Job, Record]:
    """Run what has no current record; each result is kept as soon as it is there."""
    from rlscaler_rl.training.distributed import map_runs

    records = read(path)
    missing = [job for job in jobs if job not in current(records, jobs)]
    for record in map_runs(train_and_score, missing, address, workers=workers) if missing else ():
        keep([*read(path), record], path)
        say(record)
    return current(read(path), jobs)


def keep(records: Sequence[Record], path: Path = RESULTS) -> None:
    """One line a record, so that changes can be read."""
    lines = ",\n".join(json.dumps(record) for record in sorted(records, key=_order))
    write_atomically(path, f"[\n{lines}\n]\n")


def _order(record: Record) -> tuple[bool, str, int, int, str]:
    return record["idea"] != BASE, record["idea"], record["steps"], record["seed"], record["key"] + record["probe"]
