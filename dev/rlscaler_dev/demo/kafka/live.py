"""What waits while the demo goes on, from the tables that producer and consumers are writing."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

from rlscaler_dev.demo.tails import Tail

Place = tuple[str, str]
"""Partition and offset of a message."""


class Waiting:
    """Follows `produced.csv` and `processed.csv`."""

    def __init__(self, produced: Path, processed: Path) -> None:
        self._produced, self._processed = Tail(produced), Tail(processed)
        self._waits: dict[Place, float] = {}
        self._early: set[Place] = set()
        """Messages that were processed before it was seen that they are there."""
        self._seen: set[Place] = set()
        self.produced = 0
        """Messages that were written so far."""

    def read(self) -> None:
        """Take what is new."""
        self._each(self._produced, self._take_produced)
        self._each(self._processed, self._take_processed)

    @property
    def messages(self) -> int:
        """Messages that are not processed."""
        return len(self._waits)

    def lag_seconds(self, now: float) -> float:
        """Age of the oldest of them at the Unix time `now`; 0 where nothing waits."""
        return max(0.0, now - min(self._waits.values())) if self._waits else 0.0

    def _each(self, tail: Tail, take: Callable[[list[str]], None]) -> None:
        for row in csv.reader(tail.lines()):
            if row[0][:1].isdigit():  # not the head of the table
                take(row)

    def _take_produced(self, row: list[str]) -> None:
        scheduled_at, place = float(row[0]), (row[1], row[2])
        self.produced += 1
        if place in self._early:
            self._early.remove(place)
        else:
            self._waits[place] = scheduled_at

    def _take_processed(self, row: list[str]) -> None:
        place = row[2], row[3]
        if place in self._seen:
            return
        self._seen.add(place)
        if self._waits.pop(place, None) is None:
            self._early.add(place)
