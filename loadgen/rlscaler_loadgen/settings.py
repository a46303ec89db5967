"""Settings of a Locust run in its environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from rlscaler_loadgen import patterns
from rlscaler_loadgen.patterns import poisson_arrivals
from rlscaler_loadgen.traces import read_trace


class LoadSettings(BaseSettings):
    """Each field is read from `RLSCALER_<FIELD>`."""

    model_config = SettingsConfigDict(env_prefix="RLSCALER_", use_attribute_docstrings=True, extra="ignore")

    pattern: Literal["ramp", "spike", "periodic", "random", "trace"] = "spike"
    """Load pattern."""
    duration: int = Field(300, ge=1)
    """Length of the run in seconds."""
    seed: int = Field(1, ge=0)
    """Seed of the pattern and of the arrivals."""
    low: float = Field(10.0, ge=0)
    """Lowest load in requests/s."""
    peak: float = Field(100.0, gt=0)
    """Highest load in requests/s."""
    trace: Path | None = None
    """CSV of time_s,requests_per_s for the pattern `trace`; the sample of the package by default."""
    model: str = "chat"
    """Model in the requests."""
    slo_ms: float = Field(1000.0, gt=0)
    """An answer after this time is late."""
    timeout: float = Field(5.0, gt=0)
    """Seconds after which a client gives up; the request has failed."""
    timeline: Path | None = None
    """Where to write a CSV row for every second."""
    requests: Path | None = None
    """Where to write a CSV row for every request."""
    summary: Path | None = None
    """Where to write the result as JSON."""
    started: Path | None = None
    """Where to write `{"started_at": <unix seconds>}` when the pattern begins."""
    workers: int = Field(0, ge=0)
    """Locust workers that share the run under one master; 0 = one process sends everything."""
    parent: int | None = None
    """Process that started the run; when it is gone, the run ends."""

    def rate(self) -> patterns.Float:
        """Requests/s of each second, (duration,)."""
        trace = read_trace(self.trace) if self.trace else None
        start = min(1.0, self.peak)
        return patterns.rate(
            self.pattern,
            self.duration,
            self.seed,
            low=min(self.low, self.peak),
            high=self.peak,
            start=start,
            trace=trace,
        )

    def arrival_times(self) -> patterns.Float:
        """Send times of the open loop, in seconds of the run."""
        return poisson_arrivals(self.rate(), np.random.default_rng([self.seed, 1]))


def offered_rate(pattern: str, duration: int, seed: int, **options: Any) -> patterns.Float:
    """Requests/s of each second, (duration,), of a run with these settings. Raises ValueError."""
    return LoadSettings(pattern=pattern, duration=duration, seed=seed, **options).rate()
