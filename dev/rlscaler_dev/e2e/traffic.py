"""Check of the HTTPRoute's weights: weights in force beside the requests of each pool."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlscaler_dev.demo.records import Float, Records, read_records

SETTLE_SECONDS = 4.0
"""Time that a data plane has to act on changed weights; such seconds are left out."""
FEWEST_REQUESTS = 50
"""Shares of fewer requests say little: 50 have a standard deviation of up to 7 points."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time of constant weights."""

    begin: float  # seconds of the run
    end: float
    gpu_weight: float  # share, 0-1
    gpu: int  # requests that a GPU replica answered
    cpu: int

    @property
    def gpu_share(self) -> float:
        return self.gpu / max(1, self.gpu + self.cpu)

    def to_json(self) -> dict[str, Any]:
        return {
            "from_s": round(self.begin, 1),
            "to_s": round(self.end, 1),
            "gpu_weight": round(self.gpu_weight, 3),
            "gpu_requests": self.gpu,
            "cpu_requests": self.cpu,
            "gpu_share": round(self.gpu_share, 3),
        }


def stretches(folder: Path) -> list[Stretch]:
    """The stretches of one run, by the records in FOLDER/data, that have FEWEST_REQUESTS or more."""
    records = read_records(folder / "data")
    at, is_gpu = _answered(folder / "data" / "requests.csv")
    start = records.run.started_at
    at = at - start
    stretches = []
    for begin, end, weight in _constant(records, start):
        rows = (at >= begin + SETTLE_SECONDS) & (at < end)
        gpu = int(np.sum(is_gpu[rows]))
        stretches.append(Stretch(begin, end, weight, gpu, int(np.sum(rows)) - gpu))
    return [stretch for stretch in stretches if stretch.gpu + stretch.cpu >= FEWEST_REQUESTS]


def summarise(stretches: list[Stretch]) -> dict[str, Any]:
    """`mean_error`: of the pools' share against the weights', 0-1, by request."""
    requests = np.array([stretch.gpu + stretch.cpu for stretch in stretches], dtype=float)
    errors = np.array([abs(stretch.gpu_share - stretch.gpu_weight) for stretch in stretches])
    mean = float(np.sum(requests * errors) / np.sum(requests)) if len(stretches) else None
    weights = [stretch.gpu_weight for stretch in stretches]
    return {
        "mean_error": None if mean is None else round(mean, 4),
        "gpu_weight_range": [round(min(weights), 3), round(max(weights), 3)] if stretches else None,
        "stretches": [stretch.to_json() for stretch in stretches],
    }


def _constant(records: Records, start: float) -> list[tuple[float, float, float]]:
    """(begin, end, GPU's share of the weights) of each time of constant weights during the load."""
    duration = float(len(records.offered_rps))
    inside = (records.routes.time > start) & (records.routes.time < start + duration)
    cuts = np.concatenate([[0.0], records.routes.time[inside] - start, [duration]])
    weights = records.routes.at(cuts[:-1] + start)
    total = weights.sum(axis=1)
    return [
        (float(begin), float(end), float(weight[0] / whole))
        for begin, end, weight, whole in zip(cuts, cuts[1:], weights, total, strict=False)
        if whole > 0
    ]


def _answered(path: Path) -> tuple[Float, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Return the time (Unix seconds) of each request that a replica answered, and whether a GPU replica did.

    Seconds in which some were not answered are left out: where those went is not known.
    """
    with path.open(newline="") as file:
        rows = [(float(row["scheduled_at"]), row["pool"]) for row in csv.DictReader(file)]
    at, pools = np.array([at for at, _ in rows]), np.array([pool for _, pool in rows])
    known = ~np.isin(np.floor(at), np.floor(at[pools == ""]))
    return at[known], pools[known] == "gpu"
