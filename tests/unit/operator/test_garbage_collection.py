import gc

import pytest

from rlscaler_operator.run.context import FULL_COLLECTION_SECONDS, GarbageCollection


@pytest.fixture
def clock():
    now = [0.0]
    garbage = GarbageCollection(lambda: now[0])
    garbage.begin()
    yield now
    garbage.end()


def test_what_survived_a_full_collection_is_not_looked_at_again_before_an_hour_has_passed(clock):
    survivor = [[]]
    survivor.append(survivor)
    gc.collect()
    assert gc.get_freeze_count() > 0
    number = id(survivor[0])
    del survivor
    gc.collect()
    assert gc.get_freeze_count() > 0
    clock[0] = FULL_COLLECTION_SECONDS
    gc.collect()
    assert gc.get_freeze_count() == 0
    assert any(id(one) == number for one in gc.get_objects())
    gc.collect()
    assert gc.get_freeze_count() > 0
    assert not any(id(one) == number and one == [] for one in gc.get_objects())


def test_nothing_is_left_behind():
    garbage, before = GarbageCollection(), gc.get_threshold()
    garbage.begin()
    assert gc.get_threshold() != before
    garbage.end()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
    assert not any(getattr(one, "__self__", None) is garbage for one in gc.callbacks)
