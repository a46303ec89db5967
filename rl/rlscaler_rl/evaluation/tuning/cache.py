"""Tuned settings: one JSON file that ships, and the checks that it is current."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
from optuna.distributions import distribution_to_json
from pydantic import BaseModel, ConfigDict, ValidationError

from rlscaler_core.decision.types import Float
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS, Controller, Tunable
from rlscaler_rl.evaluation.tuning.spaces import Point
from rlscaler_rl.training.files import write_atomically

PROBE_TOLERANCE = 1e-3
"""Relative; rounding differs a little between machines."""


class Record(BaseModel):
    """The settings of one contender for one workload."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    contender: str
    workload: str | None
    """None: one setting for all loads."""

    fold: int | None = None
    """Fold of the held-out workload that these settings may be judged on. They were tuned on the other."""

    found: Point
    j: float
    """J on the tune part, at the level that judges."""

    default_j: float
    """J of the contender's default settings in the same episodes."""

    trials: int
    """0: found by an earlier contender or on an earlier meter; a search starts from it, and it is out of date."""

    episodes: int
    loads: str
    """Digest of the episodes that were played."""

    space: str
    """Digest of the search space."""

    @property
    def key(self) -> Key:
        return self.contender, self.workload, self.fold


Key = tuple[str, str | None, int | None]


class Tuned(BaseModel):
    """The content of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    probes: dict[str, list[float]] = {}
    """Contender -> J of `score.probe` when its records were made."""

    records: list[Record] = []

    def find(self, key: Key) -> Record | None:
        return next((record for record in self.records if record.key == key), None)

    def merged(self, records: Iterable[Record], probes: dict[str, list[float]]) -> Tuned:
        """The content with new records in place of the old ones of the same key.

        Where a probe has moved, the other records of its contender are out of date from now on.
        """
        moved = {name for name, probe in probes.items() if not same_probe(self.probes.get(name), probe)}
        records_before = [
            record.model_copy(update={"trials": 0}) if record.contender in moved else record for record in self.records
        ]
        new = {record.key: record for record in [*records_before, *records]}
        ordered = [new[key] for key in sorted(new, key=lambda key: tuple(str(part) for part in key))]
        return Tuned(probes={**self.probes, **probes}, records=ordered)


def space_digest(tunable: Tunable) -> str:
    """Twelve hexadecimal digits of names, bounds and defaults."""
    described = {name: distribution_to_json(distribution) for name, distribution in tunable.space.items()} | {
        "default": tunable.default
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:12]


def same_probe(earlier: list[float] | None, probe: list[float]) -> bool:
    return earlier is not None and len(earlier) == len(probe) and np.allclose(earlier, probe, rtol=PROBE_TOLERANCE)


def shipped() -> Path:
    """The file in the package."""
    return Path(str(resources.files("rlscaler_rl.evaluation.tuning") / "tuned.json"))


def load(path: Path | None = None) -> Tuned:
    """The cache; empty where there is no file. Raises EvaluationError where it cannot be read."""
    source = path or shipped()
    if not source.is_file():
        return Tuned()
    try:
        return Tuned.model_validate_json(source.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise EvaluationError(f"{source}: {where}: {first['msg']}; make it again with `rlscaler tune`") from error


def save(tuned: Tuned, path: Path | None = None) -> None:
    lines = [record.model_dump_json() for record in tuned.records]
    body = '{"probes": ' + json.dumps(tuned.probes) + ',\n "records": [\n' + ",\n".join(lines) + "\n]}\n"
    # An interrupted tuning leaves the old file whole.
    write_atomically(path or shipped(), body)


@cache
def _loaded() -> Tuned:
    return load()


def is_tuned(contender: str) -> bool:
    """Is there a setting for all loads, which everything else falls back to?"""
    return _loaded().find((contender, None, None)) is not None


def record_of(contender: str, workload: str | None = None, fold: int | None = None) -> Record:
    """The settings for a workload; those for all loads where it has none of its own. Raises EvaluationError."""
    if contender not in CONTENDERS:
        raise EvaluationError(f"contender {contender!r}: choose from {', '.join(CONTENDERS)}")
    record = _loaded().find((contender, workload, fold)) or _loaded().find((contender, None, None))
    if record is None:
        raise EvaluationError(f"{contender}: no tuned settings for {workload or 'all loads'}; run `rlscaler tune`")
    if record.space != space_digest(CONTENDERS[contender]):
        raise EvaluationError(f"{contender}: tuned in a search space that has changed since; run `rlscaler tune`")
    if not record.trials:
        raise EvaluationError(
            f"{contender}: tuned for {workload or 'all loads'} before it changed; run `rlscaler tune`"
        )
    return record


def tuned(contender: str, workload: str | None = None, fold: int | None = None) -> Callable[[Float], Controller]:
    """rate (N, T) -> a fresh controller with the settings tuned for `workload`, or for all loads (None).

    `fold`: the fold of the held-out workload that it will play; it gets the settings tuned on the other. A workload
    without settings of its own gets those for all loads. Raises EvaluationError.
    """
    record = record_of(contender, workload, fold)
    return lambda rate: CONTENDERS[contender].controller(record.found, rate)
