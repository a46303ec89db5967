"""Inputs of `rlscaler evaluate` and `rlscaler compare`, read before the modules that take seconds to import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rlscaler_rl.evaluation import models
from rlscaler_rl.evaluation.episodes import folds_of, is_file
from rlscaler_rl.evaluation.models import Loaded
from rlscaler_rl.evaluation.settings import EvaluationSettings, read_settings
from rlscaler_rl.workloads import TRACES

RESULTS = Path("rl")


@dataclass(frozen=True, slots=True)
class Inputs:
    """Settings and models of an evaluation in simulation."""

    settings: EvaluationSettings
    loaded: list[Loaded]
    """The shipped model and its siblings from other training seeds."""


def read_inputs(model: Sequence[str], config: Path | None, **options: Any) -> Inputs:
    """Read options, configuration and models, and check that every recorded load has an episode to play.

    Raises EvaluationError naming the option, the file and the remedy.
    """
    settings = read_settings(config, **options)
    smallest = settings.model_copy(update={"runs": 1, "episodes": 1})
    for workload in settings.workloads:
        if workload in TRACES or is_file(workload):
            folds_of(workload, smallest)
    return Inputs(settings, models.load_all(model, RESULTS))


def default_folder(kind: str) -> Path:
    """Return `rl/KIND_YYYYMMDD_HHMMSS`."""
    return RESULTS / f"{kind}_{datetime.now():%Y%m%d_%H%M%S}"
