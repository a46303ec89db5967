"""The longest time that a run of a network from outside may take, kept by a thread that tells ONNX Runtime to stop."""

from __future__ import annotations

import threading
import time
from typing import Any

import onnxruntime

PAUSE_SECONDS = 60.0
"""Time for which a network that took too long is not asked again."""


class TimeLimit:
    """Stops a run after `seconds`, and asks that network no more for a minute, so that others wait once and not always.

    ONNX Runtime looks at the request between two operators, so a run ends at the latest with the operator in which its
    time is over. One network has one TimeLimit; its runs are one after the other.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._not_before = float("-inf")
        """The end of the pause, on the monotonic clock."""

    def run(self, session: onnxruntime.InferenceSession, outputs: list[str], inputs: dict[str, Any]) -> list[Any]:
        """Run the session. Raises TimeoutError where it took too long, now or less than a minute ago."""
        began = time.monotonic()
        if began < self._not_before:
            raise TimeoutError(f"it took longer than {self.seconds:g} s and is not asked for {PAUSE_SECONDS:g} s")
        options = onnxruntime.RunOptions()
        _watchdog.begin(options, began + self.seconds)
        try:
            results: list[Any] = session.run(outputs, inputs, options)
        except Exception as error:
            if not options.terminate:
                raise
            self._not_before = time.monotonic() + PAUSE_SECONDS
            raise TimeoutError(f"it was stopped after {time.monotonic() - began:.2f} s") from error
        finally:
            _watchdog.end(options)
        return results


class _Watchdog:
    """One thread for all runs. It sleeps until the nearest deadline, so a run of microseconds does not wake it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._deadlines: dict[onnxruntime.RunOptions, float] = {}
        self._wakes_at = float("inf")
        """When the thread looks again by itself, on the monotonic clock; inf = it waits for a run."""
        self._thread: threading.Thread | None = None

    def begin(self, options: onnxruntime.RunOptions, deadline: float) -> None:
        with self._changed:
            self._deadlines[options] = deadline
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="model-time-limit", daemon=True)
                self._thread.start()
            elif deadline < self._wakes_at:
                self._wakes_at = deadline
                self._changed.notify()

    def end(self, options: onnxruntime.RunOptions) -> None:
        with self._changed:
            self._deadlines.pop(options, None)

    def _watch(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for options in [options for options, deadline in self._deadlines.items() if deadline <= now]:
                    options.terminate = True
                    del self._deadlines[options]
                self._wakes_at = min(self._deadlines.values(), default=float("inf"))
                self._changed.wait(self._wakes_at - now if self._deadlines else None)


_watchdog = _Watchdog()
