"""Loads of which an hour stands for a day, and tables of days whose figures are written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlscaler_rl.evaluation.days.service_load import ServiceLoad
from rlscaler_rl.evaluation.days.table import DayTable, PlayedLoad, Score
from rlscaler_rl.workloads import Part

HOUR = 3600


def load(name: str, rate: float = 30.0, group: str | None = None, days: int = 5) -> ServiceLoad:
    """A load with a jump in the middle of each of its hours."""
    seconds = np.arange(days * HOUR)
    values = rate * (1 + 1.0 * ((seconds % HOUR) // 600 == 3))
    return ServiceLoad(
        name=name,
        group=group or name,
        drawn=False,
        seconds=lambda first, last: values[first:last],
        begin=1_767_571_200.0,
        offset=0,
        parts={Part.TRAIN: (0, 1), Part.TUNE: (2,), Part.TEST: (3, 4)},
        length=HOUR,
    )


def day_table(players: Mapping[str, Sequence[float]]) -> DayTable:
    """Give a table of loads of one day each, all of their own origin, from each contender's J of every load.

    All contenders but `rule` are networks.
    """
    names = [f"load{i}" for i in range(len(next(iter(players.values()))))]
    scores = [
        Score(
            load=load,
            contender=name,
            label=name,
            role="policy",
            j=[value],
            cost=[1.0],
            late_percent=[0.0],
            gpu_hours=[1.0],
            cpu_hours=[1.0],
        )
        for name, j in players.items()
        for load, value in zip(names, j, strict=True)
    ]
    return DayTable(
        kind="transfer",
        level="fluid",
        share=0.5,
        version="0",
        loads=[PlayedLoad(name=name, group=name, drawn=False, days=[0], requests=1.0, digest="") for name in names],
        scores=scores,
        networks={name: f"digest of {name}" for name in players if name != "rule"},
        seconds=1.0,
        peak_mib=1,
    )
