"""The load of a run: Locust as a process of its own, open loop, on the pattern's schedule."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

from rlscaler_dev.demo.processes import Child, Supervisor
from rlscaler_dev.demo.records import OFFERED_COLUMNS, CsvWriter
from rlscaler_dev.demo.settings import CLIENT_TIMEOUT_MS, HIGH_USERS, LOW_USERS, SERVICE, Settings
from rlscaler_dev.exceptions import DemoError
from rlscaler_loadgen.patterns import Float
from rlscaler_loadgen.runner import LoadRun
from rlscaler_loadgen.settings import LoadSettings
from rlscaler_loadgen.traces import HEADER, Trace, read_trace

START_SECONDS = 60.0
PEAK_PERCENTILE = 99.0
"""The percentile that the load generator scales to its `peak`."""
LATE_GENERATOR = "generator_late"


class Load:
    """Sends the requests and leaves `requests.csv`, `load.csv` and `load.json` in the data folder."""

    def __init__(self, options: dict[str, object], data: Path, name: str = "locust") -> None:
        """`options` are fields of `LoadSettings`; `name` is that of the process. Raises DemoError."""
        self._data, self.name = data, name
        self._options = {
            **options,
            "timeout": CLIENT_TIMEOUT_MS / 1000,
            "started": data / "started.json",
        }
        self.rate = offered(self._options)
        self._child: Child

    @property
    def requests(self) -> Path:
        return self._data / "requests.csv"

    def start(self, supervisor: Supervisor, url: str) -> Child:
        """Start Locust; it sends its first request in a moment."""
        write_offered(self.rate, self._data)
        run = LoadRun(url, self._data, True, self._options)
        self._child = supervisor.start(self.name, run.command(), run.environment())
        return self._child

    def begun(self, supervisor: Supervisor) -> float:
        """Wait for the first moment of the load: Unix seconds of t = 0."""
        started = Path(str(self._options["started"]))
        supervisor.wait_until(self._child, started.exists, START_SECONDS)
        return float(json.loads(started.read_text())["started_at"])

    @staticmethod
    def warning_in(data: Path) -> str:
        """Return a warning where the load generator itself was too slow, from its records; empty = it was not."""
        result = json.loads((data / "load.json").read_text())
        if not result.get(LATE_GENERATOR):
            return ""
        return (
            f"the load generator was late itself (1 % of the requests left {result['dispatch_lag_p99_ms']:.0f} ms or "
            "more after their time): the latencies include that; run it on an idle machine"
        )


def demo_options(settings: Settings, trace: Path | None = None, peak: float = HIGH_USERS) -> dict[str, object]:
    """The load of the demo's service; of a `trace` that was written for it, its `peak`."""
    return {
        "pattern": "trace" if trace else settings.pattern,
        "duration": settings.duration_seconds,
        "seed": settings.seed,
        "low": LOW_USERS,
        "peak": peak,
        "trace": trace or settings.trace,
        "model": SERVICE,
        "slo_ms": settings.slo_ms,
    }


def write_trace(rate: Float, path: Path) -> float:
    """Write a trace of one row a second; return the peak that makes the load generator replay it as it is."""
    rows = "".join(f"{second},{value:.4f}\n" for second, value in enumerate(rate.tolist()))
    path.write_text(f"{HEADER}\n{rows}", encoding="utf-8")
    return read_trace(path).percentile(PEAK_PERCENTILE)


def recording(*place: str) -> Trace:
    """Return a recorded load that ships, by its place among them. Raises DemoError."""
    file = resources.files("rlscaler_rl").joinpath("workloads", "data", *place)
    with resources.as_file(file) as path:
        if not path.exists():
            raise DemoError(f"the recorded load {place[-1]} is not there: install rlscaler with its data")
        return read_trace(path)


def offered(options: dict[str, object]) -> Float:
    """(seconds,) requests/s that the pattern asks for. Raises DemoError for a trace that cannot be read."""
    try:
        return LoadSettings(**options).rate()  # type: ignore[arg-type]
    except (ValueError, OSError) as error:
        raise DemoError(f"the pattern {options['pattern']} cannot be made: {error}") from error


def write_offered(rate: Float, data: Path) -> None:
    """`offered.csv` of `offered`."""
    table = CsvWriter(data / "offered.csv", OFFERED_COLUMNS)
    for second, requests_per_second in enumerate(rate):
        table.row(second, f"{requests_per_second:.4f}")
    table.close()
