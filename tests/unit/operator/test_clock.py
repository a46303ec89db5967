"""The operator's clock beside a wall clock that is set."""

import pytest

from rlscaler_operator.state.clock import FAR_SECONDS, LASTING_SECONDS, SLEW, Clock

BEGIN = 1.8e9


class Machine:
    """Wall clock with an error, and time that passes."""

    passed = 0.0
    error = 0.0

    def __init__(self):
        self.clock = Clock(lambda: BEGIN + self.passed + self.error, lambda: self.passed)

    def off(self):
        """Return the error of the clock one second later; it runs at most a tenth faster or slower."""
        before = self.clock.now()
        self.passed += 1.0
        now = self.clock.now()
        assert 1 - SLEW - 1e-6 <= now - before <= 1 + SLEW + 1e-6 or abs(self.error) > FAR_SECONDS
        return now - (BEGIN + self.passed)


@pytest.mark.parametrize("step", [0.5, -0.5, 60, -60, FAR_SECONDS, -FAR_SECONDS])
def test_a_wall_clock_that_is_corrected_is_followed_slowly_and_never_back(step):
    machine = Machine()
    machine.error = step
    assert abs(machine.off()) <= SLEW + 1e-6
    errors = [machine.off() for _ in range(int(abs(step) / SLEW) + 2)]
    assert errors[-1] == pytest.approx(step, abs=1e-3)


@pytest.mark.parametrize("step", [26 * 3600, -26 * 3600, 1e9, -1e9])
def test_a_wall_clock_that_is_far_off_is_followed_once_that_lasts(step):
    machine = Machine()
    machine.error = step
    errors = [machine.off() for _ in range(int(LASTING_SECONDS) + 2)]
    assert max(map(abs, errors[:-3])) < 1e-3
    assert errors[-1] == pytest.approx(step, abs=1e-3)


def test_a_wall_clock_that_is_wrong_for_minutes_changes_nothing():
    machine = Machine()
    for _ in range(5):
        machine.error = 7 * 86400.0
        assert max(abs(machine.off()) for _ in range(int(LASTING_SECONDS / 2))) < 1e-3
        machine.error = 0.0
        assert abs(machine.off()) < 1e-3
