"""Conditions behave as apimachinery's meta.SetStatusCondition."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rlscaler_core.api import find_condition, is_true, remove_condition, set_condition

THEN = datetime(2026, 1, 1, tzinfo=UTC)
LATER = THEN + timedelta(minutes=1)


def test_new_condition_is_appended_with_its_time():
    conditions, changed = set_condition([], "Ready", True, "Deciding", now=THEN)
    assert changed
    assert conditions[0].to_dict() == {
        "type": "Ready",
        "status": "True",
        "reason": "Deciding",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def test_time_moves_only_with_the_status():
    conditions, _ = set_condition([], "Ready", True, "Deciding", now=THEN)
    conditions, changed = set_condition(conditions, "Ready", True, "Resumed", "again", generation=2, now=LATER)
    assert changed
    assert (conditions[0].last_transition_time, conditions[0].reason) == (THEN, "Resumed")
    conditions, changed = set_condition(conditions, "Ready", False, "NoMetrics", now=LATER)
    assert changed
    assert conditions[0].last_transition_time == LATER


def test_nothing_changes_when_nothing_is_new():
    before, _ = set_condition([], "Ready", "Unknown", "Starting", now=THEN)
    after, changed = set_condition(before, "Ready", "Unknown", "Starting", now=LATER)
    assert not changed
    assert after == before


def test_other_conditions_and_their_order_stay():
    conditions, _ = set_condition([], "Ready", True, "Deciding", now=THEN)
    conditions, _ = set_condition(conditions, "Paused", False, "NotPaused", now=THEN)
    conditions, _ = set_condition(conditions, "Ready", False, "NoMetrics", now=LATER)
    assert [condition.type for condition in conditions] == ["Ready", "Paused"]
    assert not is_true(conditions, "Ready")
    assert find_condition(conditions, "Active") is None


def test_remove():
    conditions, _ = set_condition([], "Ready", True, "Deciding", now=THEN)
    assert remove_condition(conditions, "Ready") == ([], True)
    assert remove_condition(conditions, "Paused") == (conditions, False)
