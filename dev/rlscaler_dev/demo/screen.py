"""Output of the demo while it runs: steps, then a live table on a terminal or lines every ten seconds elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlscaler_dev.demo.pods import Replicas
from rlscaler_dev.demo.recorder import Condition, Recorder
from rlscaler_dev.demo.records import Float
from rlscaler_dev.demo.settings import POOLS
from rlscaler_dev.demo.tails import LiveLoad, LoadFigures
from rlscaler_dev.demo.words import action_words

LINE_SECONDS = 10.0
"""Time between two lines outside a terminal."""
KEPT_ACTIONS = 8
"""Newest actions under the table."""

GOOD_WHEN_TRUE = {"Ready", "Active", "AbleToScale", "ScalingActive"}
"""Other conditions need attention when they are True."""

COLUMNS = ("", "done/s", "p95 ms", "GPU", "CPU", "late so far", "cost so far", "last action")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One copy of the service at one moment."""

    name: str
    offered_rps: float
    load: LoadFigures
    late_percent: float
    """Late or failed requests since the load began, of all; NaN where there are none."""
    cost: float
    replicas: Mapping[str, Replicas]
    action: str
    conditions: Mapping[str, Condition]
    problem: str = ""
    """Why some of this may be out of date."""

    @property
    def cells(self) -> tuple[str, ...]:
        return (
            self.name,
            f"{self.load.finished_rps:.0f}",
            _number(self.load.p95_ms),
            *(_pool(self.replicas.get(pool)) for pool in POOLS),
            _number(self.late_percent, 1, " %"),
            f"{self.cost:.3f}",
            self.action,
        )

    @property
    def state(self) -> str:
        """Conditions that need attention."""
        shown = [
            f"{name} {condition}"
            for name, condition in self.conditions.items()
            if (condition.status == "True") != (condition.type in GOOD_WHEN_TRUE)
        ]
        return "  ".join([*shown, *([self.problem] if self.problem else [])])


def snapshot(name: str, elapsed_seconds: float, rate: Float, live: LiveLoad, recorder: Recorder) -> Snapshot:
    """Return load and replicas now. rate: (seconds,) requests/s that are offered, from 0 `elapsed_seconds` on."""
    now = time.time()
    figures = live.figures(now)
    action = recorder.last_action
    return Snapshot(
        name=name,
        offered_rps=float(rate[int(elapsed_seconds)]) if 0 <= elapsed_seconds < len(rate) else 0.0,
        load=figures,
        late_percent=100 * live.missed / live.total if live.total else float("nan"),
        cost=recorder.cost(now),
        replicas=recorder.counts,
        action=action_words(action) if action else recorder.last_change,
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

    def __init__(self, total_seconds: int, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self._total = total_seconds
        self._next_line = 0.0
        self._actions: list[str] = []
        self._last: dict[str, str] = {}
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

    def show(self, elapsed_seconds: float, copies: Sequence[Snapshot]) -> None:
        """Bring the table up to date, or write a line for each copy when it is due."""
        self._note_actions(elapsed_seconds, copies)
        if self._live is not None:
            self._live.update(self._render(elapsed_seconds, copies))
        elif elapsed_seconds >= self._next_line:
            self._next_line = (elapsed_seconds // LINE_SECONDS + 1) * LINE_SECONDS
            for copy in copies:
                self.console.print(_line(elapsed_seconds, copy))

    def _note_actions(self, elapsed_seconds: float, copies: Sequence[Snapshot]) -> None:
        for copy in copies:
            if copy.action and copy.action != self._last.get(copy.name):
                self._last[copy.name] = copy.action
                self._actions = [*self._actions, f"{max(elapsed_seconds, 0):4.0f} s  {copy.name}: {copy.action}"]
        self._actions = self._actions[-KEPT_ACTIONS:]

    def _render(self, elapsed_seconds: float, copies: Sequence[Snapshot]) -> Group:
        table = Table(box=None, header_style="bold", padding=(0, 1))
        for name in COLUMNS[:-1]:
            table.add_column(name, justify="right" if name else "left", no_wrap=True)
        for copy in copies:
            table.add_row(*copy.cells[:-1], style="red" if copy.load.late_percent > 1 else "")
        done = min(max(elapsed_seconds, 0), self._total)
        bar = Table.grid(padding=(0, 1))
        offered = f"{done:.0f} of {self._total} s, load {copies[0].offered_rps:.0f} requests/s"
        bar.add_row(ProgressBar(total=self._total, completed=done, width=40), offered)
        notes = [Text(f"{copy.name}: {copy.state}", style="yellow") for copy in copies if copy.state]
        return Group(bar, table, *(Text(action, style="dim") for action in self._actions), *notes)


def _line(elapsed_seconds: float, copy: Snapshot) -> Text:
    name, done, p95, gpu, cpu, late, cost, action = copy.cells
    parts = [
        f"{max(elapsed_seconds, 0):4.0f} s  {name:<8}",
        f"load {copy.offered_rps:3.0f}/s  done {done:>3}/s  p95 {p95:>5} ms",
        f"gpu {gpu:<7} cpu {cpu:<7}",
        f"late so far {late:>6}  cost so far {cost}",
        action,
        f"({copy.state})" if copy.state else "",
    ]
    return Text("  ".join(part for part in parts if part))
