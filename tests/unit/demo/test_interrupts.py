"""Signals that end a demo or an end-to-end run."""

from __future__ import annotations

import os
import signal
import sys
import weakref
from collections.abc import Callable
from threading import Event

import pytest

from rlscaler_dev.demo.interrupts import SIGNALS, Interrupted, interruptible


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_interrupts_and_the_next_ones_do_not(number: signal.Signals) -> None:
    again: list[str] = []
    before = signal.getsignal(number)
    with interruptible(lambda: again.append("still stopping")):
        with pytest.raises(Interrupted) as caught:
            os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
    assert caught.value.exit_code == 128 + number
    assert again == ["still stopping"]
    assert signal.getsignal(number) == before


class Finalizer:
    """Sends this process a signal in a finalizer, where Python ignores exceptions."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self._number)


def weakly(number: signal.Signals) -> None:
    """Send a signal in the callback of a weak reference."""
    weakref.finalize(type("Subject", (), {})(), os.kill, os.getpid(), number)


def send_and_wait(send: Callable[[signal.Signals], object], number: signal.Signals) -> None:
    send(number)
    Event().wait(60)  # until the signal; nothing sets the event


@pytest.mark.parametrize("send", [Finalizer, weakly])
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_a_finalizer_is_not_lost(number: signal.Signals, send: Callable[[signal.Signals], object]) -> None:
    again: list[str] = []
    hook = sys.unraisablehook
    with interruptible(lambda: again.append("still stopping")):
        with pytest.raises(Interrupted) as caught:
            send_and_wait(send, number)
        os.kill(os.getpid(), number)
    assert caught.value.exit_code == 128 + number
    assert again == ["still stopping"]
    assert sys.unraisablehook is hook


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_a_finalizer_at_the_end_of_the_block_is_not_lost(number: signal.Signals) -> None:
    with pytest.raises(Interrupted) as caught, interruptible(lambda: None):
        Finalizer(number)
    assert caught.value.exit_code == 128 + number


def test_other_errors_of_finalizers_are_shown_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: shown.append(repr(ignored.exc_value)))

    class Broken:
        def __del__(self) -> None:
            raise ValueError("broken")

    with interruptible(lambda: None):
        Broken()
    assert shown == ["ValueError('broken')"]
