"""What is tried after the API server has refused replicas."""

import pytest

from rlscaler_core.decision.batch import decide_all
from rlscaler_core.decision.tables import make_params
from rlscaler_operator.state.refusals import HOLD_SECONDS, Refusal, within

NOW = 1000.0


def approached(base, wanted, accepts):
    """Return the replicas at which a pool that wants `wanted` ends, and the writes that were refused on the way."""
    refusal, refused = Refusal(), 0
    while True:
        params = within(make_params(1, min_replicas=1, max_replicas=20), [(0, base, refusal)], NOW)
        desired = min(max(wanted, int(params.min_replicas[0, 0])), int(params.max_replicas[0, 0]))
        if desired == base:
            return base, refused
        if accepts(desired):
            base = desired
        else:
            refusal.refused(base, desired, "no", NOW)
            refused += 1


@pytest.mark.parametrize("most", range(1, 12))
def test_a_pool_comes_as_near_as_it_is_let_with_few_writes(most):
    end, refused = approached(1, 10, lambda replicas: replicas <= most)
    assert (end, refused <= 5) == (min(most, 10), True)
    end, refused = approached(12, 1, lambda replicas: replicas >= most)
    assert (end, refused <= 5) == (most, True)


def test_after_a_while_the_whole_change_is_tried_again():
    refusal = Refusal()
    refusal.refused(2, 10, "no", NOW)
    assert within(make_params(1, max_replicas=20), [(0, 2, refusal)], NOW + 1).max_replicas[0].tolist() == [6, 20]
    params = make_params(1, max_replicas=20)
    assert within(params, [(0, 2, refusal)], NOW + HOLD_SECONDS) is params


def test_replicas_that_run_are_within_the_bounds_whoever_set_them():
    refusal = Refusal()
    refusal.refused(4, 5, "no", NOW)
    refusal.refused(4, 1, "no", NOW)
    for running in (0, 3, 4, 9):
        params = within(make_params(1, min_replicas=1, max_replicas=20), [(0, running, refusal)], NOW)
        assert running <= params.max_replicas[0, 0] <= max(4, running)
        assert params.min_replicas[0, 0] <= max(1, running)


def test_the_other_pool_takes_what_is_refused(entry):
    """240 requests/s need 12 GPU replicas or as many CPU replicas as carry the same."""
    row = entry(kind="floor", replicas=(2, 2), rate=240.0, max_replicas=100, min_replicas=1)
    refusal = Refusal()
    refusal.refused(2, 4, "no", NOW)
    refusal.refused(2, 3, "no", NOW)
    row.params = within(row.params, [(0, 2, refusal)], NOW)
    gpu, cpu = decide_all([row])[0].decision.desired[0].tolist()
    assert gpu == 2
    assert gpu * 20 + cpu * 4 >= 240
