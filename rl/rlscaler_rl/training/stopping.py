"""Ctrl-C and SIGTERM: a training ends after its next update, with a checkpoint of that moment."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Self

import click

SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT_CODE = 130
"""Of a command that was interrupted."""


class Stop:
    """While entered, true once a signal has come; a second one raises KeyboardInterrupt at once. Main thread only."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __call__(self) -> bool:
        return self.asked

    def __enter__(self) -> Self:
        self._before = {name: signal.signal(name, self._note) for name in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        click.echo(f"\n{signal.Signals(number).name}: stopping after this update; once more to stop at once")
