"""Output of the demo while it runs: steps, then a live table on a terminal or a line every ten seconds elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlscaler_dev.demo.recorder import Condition, Recorder, Replicas
from rlscaler_dev.demo.records import Float
from rlscaler_dev.demo.settings import POOLS, Settings
from rlscaler_dev.demo.tails import LiveLoad, LoadFigures

LINE_SECONDS = 10.0
"""Distance of the lines, and of the rows that the live table keeps."""
KEPT_ROWS = 14

GOOD_WHEN_TRUE = {"Ready", "Active", "AbleToScale", "ScalingActive"}
"""Other conditions need attention when they are True."""

COLUMNS = (("time", "right"), ("offered", "right"), ("done/s", "right"), ("p95 ms", "right"), ("late", "right"))
POOL_COLUMNS = (("GPU", "left"), ("CPU", "left"), ("traffic", "left"), ("last action", "left"), ("shield", "left"))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The run at one moment."""

    elapsed_seconds: float
    offered_rps: float
    load: LoadFigures
    replicas: Mapping[str, Replicas | None]
    weights: tuple[int, int] | None
    placement: str
    action: str
    guards: tuple[str, ...]
    conditions: Mapping[str, Condition]
    problem: str = ""
    """Why some of this may be out of date."""

    @property
    def cells(self) -> tuple[str, ...]:
        return (
            f"{max(self.elapsed_seconds, 0):.0f} s",
            f"{self.offered_rps:.0f}",
            f"{self.load.finished_rps:.0f}",
            _number(self.load.p95_ms),
            _number(self.load.late_percent, 1, " %"),
            *(_pool(self.replicas.get(pool)) for pool in POOLS),
            self.traffic,
            self.action,
            ", ".join(self.guards),
        )

    @property
    def traffic(self) -> str:
        """`PreferGPU 91:9`, in percent."""
        if self.weights is None or not sum(self.weights):
            return self.placement or "-"
        gpu = round(100 * self.weights[0] / sum(self.weights))
        return f"{self.placement} {gpu}:{100 - gpu}".strip()

    @property
    def state(self) -> str:
        """Whether it is Ready, and every other condition that needs attention."""
        shown = [
            f"{name}={condition}"
            for name, condition in self.conditions.items()
            if name == "Ready" or (condition.status == "True") != (condition.type in GOOD_WHEN_TRUE)
        ]
        return "  ".join(shown)


def snapshot(settings: Settings, elapsed_seconds: float, rate: Float, live: LiveLoad, recorder: Recorder) -> Snapshot:
    """Return load and replicas now. rate: (seconds,) requests/s that are offered, from 0 `elapsed_seconds` on.

    Changes by the shield are shown for one interval.
    """
    now = time.time()
    last, action, guarded = recorder.last, recorder.last_action, recorder.last_guards
    recent = guarded is not None and now - guarded.time < settings.interval_seconds
    return Snapshot(
        elapsed_seconds=elapsed_seconds,
        offered_rps=float(rate[int(elapsed_seconds)]) if 0 <= elapsed_seconds < len(rate) else 0.0,
        load=live.figures(now),
        replicas=recorder.replicas,
        weights=recorder.weights,
        placement=last.placement if last else "",
        action=action.action_text if action else recorder.last_change,
        guards=guarded.guards if guarded and recent else (),
        conditions=recorder.conditions,
        problem=recorder.error or "",
    )


def _number(value: float, digits: int = 0, unit: str = "") -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}{unit}"


def _pool(replicas: Replicas | None) -> str:
    """`1/3`: ready of desired; `+2` are starting."""
    if replicas is None:
        return "-"
    starting = f" +{replicas.starting}" if replicas.starting else ""
    return f"{replicas.ready}/{replicas.spec}{starting}"


class Screen:
    """Writes to a terminal or to a pipe; only `step` is the same on both."""

    def __init__(self, settings: Settings, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self._settings = settings
        self._next_row = 0.0
        self._rows: list[tuple[str, ...]] = []
        self._live: Live | None = None

    def step(self, text: str) -> None:
        """Something begins or has ended."""
        self.console.print(Text(f"• {text}"))

    @contextmanager
    def table(self) -> Iterator[None]:
        """The live part, while the load runs."""
        if not self.console.is_terminal:
            yield
            return
        with Live(console=self.console, refresh_per_second=4, transient=False) as self._live:
            yield
        self._live = None

    def show(self, snapshot: Snapshot) -> None:
        """Bring the table up to date, or write a line when one is due."""
        due = snapshot.elapsed_seconds >= self._next_row
        if due:
            self._next_row = (snapshot.elapsed_seconds // LINE_SECONDS + 1) * LINE_SECONDS
        if self._live is None:
            if due:
                self.console.print(_line(snapshot))
            return
        if due:
            self._rows = [*self._rows[-KEPT_ROWS:], snapshot.cells]
        self._live.update(self._render(snapshot))

    def _render(self, snapshot: Snapshot) -> Group:
        table = Table(box=None, header_style="bold", padding=(0, 1))
        for name, justify in (*COLUMNS, *POOL_COLUMNS):
            table.add_column(name, justify=justify, no_wrap=name not in ("last action", "shield"))  # type: ignore[arg-type]
        for row in self._rows:
            table.add_row(*row, style="dim")
        table.add_row(*snapshot.cells, style="red" if snapshot.load.late_percent > 1 else "")
        total = self._settings.duration_seconds
        done = min(max(snapshot.elapsed_seconds, 0), total)
        bar = Table.grid(padding=(0, 1))
        bar.add_row(ProgressBar(total=total, completed=done, width=60), f"{done:.0f} of {total} s")
        notes = [Text(snapshot.state, style="dim")]
        if snapshot.problem:
            notes.append(Text(snapshot.problem, style="yellow"))
        return Group(table, bar, *notes)


def _line(snapshot: Snapshot) -> Text:
    time, offered, done, p95, late, gpu, cpu, traffic, action, guards = snapshot.cells
    parts = [
        f"{time:>6}",
        f"{offered:>4} offered {done:>4} done/s",
        f"p95 {p95:>5} ms",
        f"late {late:>7}",
        f"gpu {gpu:<7} cpu {cpu:<7} {traffic:<16}",
        action,
        f"[{guards}]" if guards else "",
        snapshot.state,
        f"({snapshot.problem})" if snapshot.problem else "",
    ]
    return Text("  ".join(part for part in parts if part))


def summary_table(summary: Mapping[str, object]) -> Table:
    """The figures of the run, for the end."""
    table = Table(box=None, show_header=False, padding=(0, 2))
    for key, value in summary.items():
        if key != "versions":
            table.add_row(key, "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value))
    return table
