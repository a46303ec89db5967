"""Loads of which an hour stands for a day, and tables of days whose figures are written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlscaler_rl.evaluation.days.service_load import ServiceLoad
from rlscaler_rl.evaluation.days.setting import Setting
from rlscaler_rl.evaluation.days.table import DayTable, PlayedLoad, Score
from rlscaler_rl.workloads import Part

HOUR = 3600


def load(name: str, rate: float = 30.0, group: str | None = None, length: int = HOUR, days: int = 5) -> ServiceLoad:
    """Return a load of days of `length` seconds, with a jump in the middle of each of its hours."""
    seconds = np.arange(days * length)
    values = rate * (1 + 1.0 * ((seconds % HOUR) // 600 == 3))
    return ServiceLoad(
        name=name,
        group=group or name,
        drawn=False,
        seconds=lambda first, last: values[first:last],
        begin=1_767_571_200.0,
        offset=0,
        parts={Part.TRAIN: (0, 1), Part.TUNE: (2,), Part.TEST: (3, 4)},
        length=length,
    )


def day_table(
    players: Mapping[str, Sequence[float]], roles: Mapping[str, str] | None = None, names: Sequence[str] | None = None
) -> DayTable:
    """Return a table of loads of one day each, all of their own origin, from each contender's J of every load.

    A contender without a role is a policy; those called `network_N` are networks. The first load has drawn seconds.
    """
    names = names or [f"load{i}" for i in range(len(next(iter(players.values()))))]
    scores = [
        Score(
            load=load,
            contender=name,
            label=name.upper(),
            role=(roles or {}).get(name, "policy"),
            j=[value],
            cost=[value - 0.5],
            late_percent=[1.0],
            gpu_hours=[1.0],
            cpu_hours=[1.0],
            gpu_starts=[2.0],
            cpu_starts=[3.0],
        )
        for name, j in players.items()
        for load, value in zip(names, j, strict=True)
    ]
    loads = [
        PlayedLoad(
            name=name,
            group=name,
            drawn=not number,
            by_second=False,
            days=[0],
            settings=[Setting()],
            seconds=86_400,
            requests=1.0,
            digest="",
        )
        for number, name in enumerate(names)
    ]
    return DayTable(
        kind="transfer",
        level="fluid",
        share=0.5,
        version="0",
        loads=loads,
        scores=scores,
        networks={name: f"digest of {name}" for name in players if name.startswith("network_")},
        seconds=1.0,
        peak_mib=1,
    )
