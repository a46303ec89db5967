"""The result folder: figures, timelines and the picture of one run or of two copies, written from the raw records.

OUT/summary.json  timeline.png  timeline.csv    the results; of two copies timeline-hpa.csv and timeline-rlscaler.csv
OUT/audit.jsonl                                 the operator's decisions, one a line
OUT/data/                                       the raw records (`records.py`), of two copies in data/hpa, data/rlscaler
OUT/logs/                                       output of each process
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlscaler_dev.demo.plot import Shown, draw
from rlscaler_dev.demo.records import Records, Run, read_records
from rlscaler_dev.demo.settings import COPIES, GPU_POOL, HPA, POLICY, POOLS
from rlscaler_dev.demo.timeline import EXISTING, SPEC, build_timeline
from rlscaler_dev.demo.words import capacity_sentence, cold_sentence, sentence, used
from rlscaler_dev.exceptions import DemoError


@dataclass(frozen=True, slots=True)
class ResultFolder:
    """The files of one run."""

    out: Path

    @property
    def data(self) -> Path:
        return self.out / "data"

    @property
    def logs(self) -> Path:
        return self.out / "logs"

    @property
    def audit(self) -> Path:
        return self.out / "audit.jsonl"

    @property
    def summary(self) -> Path:
        return self.out / "summary.json"

    @property
    def timeline(self) -> Path:
        return self.out / "timeline.csv"

    @property
    def picture(self) -> Path:
        return self.out / "timeline.png"

    def prepare(self) -> None:
        """Make room for a new run. Raises DemoError rather than delete files of anything but a demo."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            if any(self.out.iterdir()) and not self.data.is_dir():
                raise DemoError(
                    f"{self.out} holds something else than a demo's results: name another folder with --out"
                )
            for folder in (self.data, self.logs):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
            for file in (self.audit, self.summary, self.picture, *self.out.glob("timeline*.csv")):
                file.unlink(missing_ok=True)
        except OSError as error:
            raise DemoError(
                f"{self.out} cannot be written: {error.strerror}: name another folder with --out"
            ) from error

    def write(self) -> dict[str, Any]:
        """Write summary, timeline and picture of one run; return the summary. Raises RecordError."""
        shown, summary = _shown(self.data)
        shown.timeline.write(self.timeline)
        self._finish(summary, [shown], f"{shown.label}: {used(summary)}")
        return summary

    def write_copies(self) -> str:
        """Write summary, timelines and picture of two copies; return the sentence about them. Raises RecordError."""
        copies = {name: _shown(self.data / name) for name in COPIES}
        summaries = {name: summary for name, (_, summary) in copies.items()}
        timelines = {name: shown.timeline for name, (shown, _) in copies.items()}
        for name, timeline in timelines.items():
            timeline.write(self.timeline.with_name(f"timeline-{name}.csv"))
        text = sentence(summaries)
        # Only a spike jumps unannounced: the daily job was seen before, the other shapes do not jump.
        if summaries[POLICY]["pattern"] == "spike":
            text = f"{text} {cold_sentence(timelines, GPU_POOL)}".strip()
        run = Run.read(self.data / POLICY / "run.json")
        believed = self._believed() if run.capacity_error else None
        text = f"{text} {capacity_sentence(run, believed)}".strip()
        self._finish({"sentence": text, "copies": summaries}, [shown for shown, _ in copies.values()], text)
        return text

    def _believed(self) -> float | None:
        """Return the requests/s of a GPU replica that the operator believes in the end; None where it never said."""
        lines = self.audit.read_text().splitlines() if self.audit.exists() else []
        return json.loads(lines[-1])["capacity"]["gpu"] if lines else None

    def _finish(self, summary: dict[str, Any], shown: list[Shown], text: str) -> None:
        self.summary.write_text(json.dumps(summary, indent=2) + "\n")
        draw(shown, text, self.picture)


def _shown(data: Path) -> tuple[Shown, dict[str, Any]]:
    records = read_records(data)
    name = {"rl": POLICY, "hpa": HPA}[records.run.contender]
    return Shown(name, LABELS[name], build_timeline(records)), summarise(records)


LABELS = {HPA: "the HPA", POLICY: "rlscaler"}


def summarise(records: Records) -> dict[str, Any]:
    """The figures over the load's duration, from the raw records.

    - `failures`: rejected, timed out or broken. `slo_violation_ratio`: failed or slower than the SLO, of all requests.
    - `goodput_rps`: requests answered within the SLO, a second of load.
    - `p50_ms`, `p95_ms`, `p99_ms`: from the moment the open-loop schedule wanted a request sent; a failure counts with
      the client's timeout. None when nothing was sent.
    - `*_replica_seconds`: every pod that exists, also while pending, starting or terminating, integrated over time.
    - `scale_ups`, `scale_downs`: changes of spec.replicas. `decisions`: intervals in which the actor decided; for the
      HorizontalPodAutoscaler, which does not say when it decides, its changes of scale.
    - `unknown_observations`: required observations that were unknown at a decision.
    """
    run = records.run
    start, end = run.started_at, run.started_at + run.duration_s
    requests = records.requests.between(start, end)
    in_time = requests.ok & (requests.latency_ms <= run.slo_ms)
    total, failures = len(requests), int(np.sum(~requests.ok))
    changes = [records.replicas[pool].changes(start, end)[:, SPEC] for pool in POOLS]
    ups, downs = (int(sum(np.sum(np.sign(change) == sign) for change in changes)) for sign in (1, -1))
    placements = records.decisions.placements.changes(start, end)
    gpu, cpu = (float(records.replicas[pool].integral(np.array([start, end]))[0, EXISTING]) for pool in POOLS)
    decided = records.decisions.by_actor & (records.decisions.time >= start) & (records.decisions.time < end)
    return {
        "contender": run.contender,
        "pattern": run.pattern,
        "seed": run.seed,
        "requests": total,
        "failures": failures,
        "goodput_rps": round(float(np.sum(in_time)) / run.duration_s, 3),
        **_percentiles(requests.latency_ms),
        "slo_violation_ratio": round(1 - float(np.sum(in_time)) / total, 5) if total else None,
        "gpu_replica_seconds": round(gpu, 1),
        "cpu_replica_seconds": round(cpu, 1),
        "cost": round((gpu * run.cost_per_hour["gpu"] + cpu * run.cost_per_hour["cpu"]) / 3600, 5),
        "decisions": int(np.sum(decided)) if run.contender == "rl" else ups + downs,
        "scale_ups": ups,
        "scale_downs": downs,
        "placement_changes": int(np.sum(placements != 0)),
        "unknown_observations": int(np.sum(records.decisions.unknown[decided])),
        "server_version": run.server_version,
        "duration_s": run.duration_s,
        "interval_seconds": run.interval_seconds,
        "slo_ms": run.slo_ms,
        "versions": run.versions,
    }


def _percentiles(latency_ms: np.ndarray[Any, Any]) -> dict[str, float | None]:
    names, ranks = ("p50_ms", "p95_ms", "p99_ms"), (50, 95, 99)
    if not len(latency_ms):
        return dict.fromkeys(names)
    return {name: round(float(value), 1) for name, value in zip(names, np.percentile(latency_ms, ranks), strict=True)}
