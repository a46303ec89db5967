"""Progress of the builder and the launcher, on a terminal or in the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

LINE_SECONDS = 30.0
"""Longest silence of a step outside a terminal, as far as the step itself gives notice."""

_log = logging.getLogger("rlscaler.devcluster")


class Reporter:
    """Writes to the log; base of the other reporters, and the default outside the command line."""

    def say(self, message: str) -> None:
        """One thing that happens."""
        _log.info(message)

    def plan(self, steps: Sequence[tuple[str, float]]) -> None:
        """The steps ahead and their weights."""

    def step(self, name: str, done: int, total: int) -> None:
        """`done` of `total` packages or megabytes of a step are done; both 0 while that is not known yet."""

    def finish(self, name: str, note: str) -> None:
        """A step is done."""
        self.say(f"{name}: {note}")

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class ConsoleReporter(Reporter):
    """Bars in a terminal, elsewhere plain lines, one at least every 30 s of a long step; always on standard error."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self._clock = clock
        self._last_line = clock()
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def say(self, message: str) -> None:
        self.console.print(message, markup=False, soft_wrap=True)
        self._last_line = self._clock()

    def plan(self, steps: Sequence[tuple[str, float]]) -> None:
        if not self.console.is_terminal:
            return
        self._progress = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=self.console,
        )
        for name, weight in steps:
            note = f"about {weight:.0f} s"
            self._tasks[name] = self._progress.add_task(name, start=False, total=None, note=note)
        self._progress.start()

    def step(self, name: str, done: int, total: int) -> None:
        note = f"{done}/{total}" if done < total else "linking" if total else "resolving"
        if self._progress and name in self._tasks:
            task = self._tasks[name]
            if not self._progress.tasks[task].started:
                self._progress.start_task(task)
            self._progress.update(task, completed=done, total=max(total, 1), note=note)
        elif self._clock() - self._last_line >= LINE_SECONDS:
            self.say(f"{name}: {note}")

    def finish(self, name: str, note: str) -> None:
        if self._progress and name in self._tasks:
            task = self._tasks[name]
            self._progress.update(task, completed=1, total=1, note=note)
            self._progress.stop_task(task)
        else:
            self.say(f"{name}: {note}")

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.stop()
            self._progress = None
