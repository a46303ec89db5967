"""A trace of one's own, cut into files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from rlscaler_loadgen.traces import Trace, write_trace
from rlscaler_rl.workloads.errors import WorkloadError
from rlscaler_rl.workloads.names import Part
from rlscaler_rl.workloads.recording import FRACTIONS, cut


def split_file(trace: Trace, name: str, folder: Path) -> list[Path]:
    """Write `name`-train.csv and so on, and `name`.split.json; the paths. Raises WorkloadError."""
    reference = cut(trace, name).reference
    ends = np.rint(np.cumsum(list(FRACTIONS.values())) * len(trace.rate)).astype(int)
    begins = [0, *ends[:-1].tolist()]
    parts, paths = {}, []
    for part, begin, end in zip(Part, begins, ends.tolist(), strict=True):
        piece = Trace(trace.rate[begin:end], trace.width_s, (*trace.comments, f"Part: {part}, bins {begin} to {end}"))
        if len(piece.rate) < 2 or not piece.rate.any():
            raise WorkloadError(
                f"{name}: its {part} part has {len(piece.rate)} bins or no traffic; give a longer trace"
            )
        paths.append(folder / f"{name}-{part}.csv")
        parts[part.value] = {"file": paths[-1].name, "bins": [begin, end], "digest": piece.digest()}
        try:
            write_trace(paths[-1], piece, digits=17)
        except OSError as error:
            raise WorkloadError(f"{paths[-1]}: {error.strerror}; name a folder that can be written by --out") from error
    rule = "by time: " + ", ".join(f"{part} {100 * share:g} %" for part, share in FRACTIONS.items())
    record = {"rule": rule, "digest": trace.digest(), "reference_rps": reference, "parts": parts}
    paths.append(folder / f"{name}.split.json")
    paths[-1].write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return paths
