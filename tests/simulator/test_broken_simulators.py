"""Every broken simulator is caught, twice: by the simulator's own ledger and by the audit of an evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlscaler_rl.evaluation.invariants import Audit
from rlscaler_rl.simulation import ledger as ledgers
from rlscaler_rl.simulation import levels
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.ledger import Ledger, LedgerError
from rlscaler_rl.simulation.scenario import Scenarios, nominal

from .broken import FAULTS

CASES = [pytest.param(fault, level, id=f"{fault.__name__}-{level}") for fault in FAULTS for level in fault.levels]


class UpAndDown:
    """Adds and removes pods all the time; too few of them for a while."""

    def reset(self, params: Any) -> None:
        self.n = len(params)

    def __call__(self, params: Any, state: Any, samples: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        few = samples.time[0] % 120 < 60
        return np.tile([1, 2] if few else [4, 7], (self.n, 1)), np.ones(self.n, np.int64)


def scenarios() -> Scenarios:
    """Overload, idleness, pods that find no room."""
    return nominal(["spike", "random"], [1, 2], 300, cold_start_low=(20.0, 8.0), schedulable=(3, 64))


def played(level: levels.LevelName, monkeypatch: pytest.MonkeyPatch, fault: Any = None) -> Ledger:
    """The unchecked ledger of a run."""
    make = levels.make
    with monkeypatch.context() as patch:
        patch.setattr(ledgers, "check", lambda ledger, scenarios: ledger)
        if fault is not None:
            patch.setattr(levels, "make", lambda name, n: fault(make(name, n)))
        return run(scenarios(), UpAndDown(), level=level).ledger


@pytest.mark.parametrize("level", levels.LEVELS)
def test_the_sound_simulator_passes_where_the_broken_ones_do_not(level, monkeypatch):
    ledger = played(level, monkeypatch)
    assert ledger.dropped.min() > 0, "the load must strain the service, or nothing is tried"
    assert ledger.late.min() > 0
    ledgers.check(ledger, scenarios())
    audit = Audit()
    audit.add("sound", ledger, scenarios())
    assert not audit.reasons()


@pytest.mark.parametrize(("fault", "level"), CASES)
def test_a_broken_simulator_is_caught(fault, level, monkeypatch):
    ledger = played(level, monkeypatch, fault)
    with pytest.raises(LedgerError, match="broken invariant"):
        ledgers.check(ledger, scenarios())
    audit = Audit()
    audit.add("broken", ledger, scenarios())
    assert fault.broken in {item.name for item in audit.invariants() if not item.holds}
