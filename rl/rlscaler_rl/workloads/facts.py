"""Length, rates, parts and origin of a recorded load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlscaler_loadgen.traces import Trace
from rlscaler_rl.workloads.library import WHOLE, recording, splits
from rlscaler_rl.workloads.names import TRACES, Part
from rlscaler_rl.workloads.recording import Float, Recording, cut

DISPERSION_SECONDS = 10
BLOCK_SECONDS = 600


@dataclass(frozen=True)
class TraceFacts:
    """Rates in requests/s as recorded, times in seconds."""

    name: str
    what: str
    bins: int
    width_s: float
    length_s: float
    p50: float
    p99: float
    peak: float
    dispersion: float
    """Variance over mean of the requests in 10 s: 1 for Poisson arrivals of a constant rate."""
    reference: float
    """The rate that becomes the planned peak: the 99th percentile of the train part."""
    parts: dict[str, int]
    """Length of each part in seconds."""
    blocks: dict[str, int]
    """Number of blocks of 10 minutes in each part, none overlapping another."""
    source: str
    licence: str
    digest: str
    """SHA-256 of the whole series."""


def named(traces: Path | None = None) -> list[TraceFacts]:
    """The facts of the recorded workloads: of the samples that ship, or of the full files in the folder `traces`."""
    listed = []
    for name in TRACES:
        split = splits().traces[name]
        recorded = recording(name, traces)
        sampled = traces is None and WHOLE not in split.sample
        seconds = sum(map(recorded.seconds, Part)) if sampled else split.bins * split.width_s
        what = f"{split.what} (sample)" if sampled else split.what
        bins = round(seconds / split.width_s)
        about = {"source": split.source, "licence": split.licence, "digest": split.digest}
        listed.append(_facts(recorded, what, bins, split.width_s, about))
    return listed


def own(trace: Trace, name: str) -> TraceFacts:
    """The facts of a trace of one's own."""
    notes = dict(comment.split(":", 1) for comment in trace.comments if ":" in comment)
    known = {key.strip().lower(): value.strip() for key, value in notes.items()}
    about = {"source": known.get("source", "-"), "licence": known.get("licence", "-"), "digest": trace.digest()}
    return _facts(cut(trace, name), "your own", len(trace.rate), trace.width_s, about)


def dispersion(counts: Float, bins: int = DISPERSION_SECONDS) -> float:
    """Variance over mean of the sums of so many counts in a row, each of them the requests in one bin."""
    sums = counts[: len(counts) // bins * bins].reshape(-1, bins).sum(1)
    return float(sums.var() / sums.mean()) if len(sums) and sums.any() else 0.0


def _facts(recorded: Recording, what: str, bins: int, width: float, about: dict[str, str]) -> TraceFacts:
    rate = np.concatenate([piece for part in Part for piece in recorded.pieces[part]])
    p50, p99, peak = np.percentile(rate, (50, 99, 100))
    return TraceFacts(
        name=recorded.name,
        what=what,
        bins=bins,
        width_s=width,
        length_s=bins * width,
        p50=float(p50),
        p99=float(p99),
        peak=float(peak),
        dispersion=dispersion(rate),
        reference=recorded.reference,
        parts={part.value: recorded.seconds(part) for part in Part},
        blocks={part.value: recorded.count(part, BLOCK_SECONDS) for part in Part},
        **about,
    )
