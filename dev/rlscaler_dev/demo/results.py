"""The result folder: what a run writes, and writing its figures and picture again from the raw records.

OUT/summary.json  timeline.csv  timeline.png    the results
OUT/audit.jsonl                                 the operator's decisions, one a line
OUT/data/                                       the raw records (`records.py`)
OUT/logs/                                       what each process wrote
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlscaler_dev.demo.exceptions import DemoError
from rlscaler_dev.demo.plot import plot_timeline
from rlscaler_dev.demo.records import read_records
from rlscaler_dev.demo.summary import summarise
from rlscaler_dev.demo.timeline import build_timeline


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
        """Make room for a new run. Raises DemoError rather than delete what is not a demo's."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            if any(self.out.iterdir()) and not self.data.is_dir():
                raise DemoError(
                    f"{self.out} holds something else than a demo's results: name another folder with --out"
                )
            for folder in (self.data, self.logs):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
            for file in (self.audit, self.summary, self.timeline, self.picture):
                file.unlink(missing_ok=True)
        except OSError as error:
            raise DemoError(
                f"{self.out} cannot be written: {error.strerror}: name another folder with --out"
            ) from error

    def write(self) -> dict[str, Any]:
        """Write timeline.csv, summary.json and timeline.png from the raw records; returns the summary.

        Raises RecordError that names the record that is missing.
        """
        records = read_records(self.data)
        timeline, summary = build_timeline(records), summarise(records)
        timeline.write(self.timeline)
        self.summary.write_text(json.dumps(summary, indent=2) + "\n")
        plot_timeline(timeline, {**summary, "mode": records.run.mode}, self.picture)
        return summary
