"""What a line of the audit log costs: bytes, time to make it, and how fast a replay is.

    python benchmarks/record.py results/demo-rl-spike

Takes a real log (`rlscaler demo`, or `--audit-log` of an operator) and prints one JSON document.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from pathlib import Path

from rlscaler_core.decision.batch import decide_all
from rlscaler_dev.benchmark import machine
from rlscaler_operator.cli.replay.actors import AvailableActors
from rlscaler_operator.cli.replay.compare import replay
from rlscaler_operator.records.log import find_files, read
from rlscaler_operator.records.record import Subject, entry_of, line

DECISIONS = 5000


def main() -> None:
    files = find_files([Path(path) for path in sys.argv[1:]])
    actors, lines = AvailableActors(), [one for one in read(files) if one.record is not None]
    texts = [json.dumps(one.record, separators=(",", ":")).encode() + b"\n" for one in lines]
    records = [one.record for one in lines if one.record is not None]
    outcomes = decide_all([entry_of(record, actors.find) for record in records])
    subject = Subject("ns", "name", "uid", 1, "Auto")
    rounds = max(1, DECISIONS // len(lines))

    began = time.process_time()
    for _ in range(rounds):
        for outcome in outcomes:
            json.dumps(line("id", 1.0, subject, outcome, [], None, None), separators=(",", ":"), allow_nan=False)
    making = (time.process_time() - began) / (rounds * len(outcomes))

    began = time.process_time()
    same = sum(not (one.differences or one.problem) for one in replay(lines * rounds, actors))
    replaying = (time.process_time() - began) / (rounds * len(lines))
    result = {
        "decisions": len(lines),
        "same_percent": 100 * same / (rounds * len(lines)),
        "bytes_mean": round(sum(map(len, texts)) / len(texts)),
        "bytes_most": max(map(len, texts)),
        "compressed_bytes_mean": round(len(gzip.compress(b"".join(texts), 6)) / len(texts)),
        "milliseconds_to_make": round(1000 * making, 3),
        "replayed_per_second": round(1 / replaying),
        "machine": machine(),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
