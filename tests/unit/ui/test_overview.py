"""The table of all policies: states in a word, comparisons, search and order."""

from datetime import UTC, datetime

import pytest

from rlscaler_live.ui.overview import ROWS, overview, row_of
from tests.unit.ui.conftest import condition

NOW = datetime(2026, 1, 9, 13, tzinfo=UTC)
READY = condition("Ready", "True", "Ready")


def conditions(type_, status, reason):
    return {"conditions": [READY, condition(type_, status, reason)]}


BROKEN = {
    "no operator": ({"conditions": []}, "not seen", "NoReport"),
    "no metrics": ({"conditions": [condition("Ready", "False", "SeriesAbsent")]}, "broken", "SeriesAbsent"),
    "wrong spec": ({"conditions": [condition("Ready", "False", "InvalidSpec")]}, "broken", "InvalidSpec"),
    "no model": ({"conditions": [condition("Ready", "Unknown", "ModelInvalid")]}, "broken", "ModelInvalid"),
    "held by an HPA": (conditions("Conflicted", "True", "ForeignWriter"), "blocked", "ForeignWriter"),
    "blind": (conditions("Fallback", "True", "SampleStale"), "fallback", "SampleStale"),
    "paused": (conditions("Paused", "True", "PausedByAnnotation"), "paused", "PausedByAnnotation"),
    "capacity": (conditions("CapacityUnknown", "True", "NotMeasured"), "learning", "NotMeasured"),
    "old model": (conditions("ModelOutdated", "True", "DigestMismatch"), "old model", "DigestMismatch"),
    "demoted": (
        {"promotion": {"state": "Demoted", "since": "2026-01-05T00:00:00Z", "reason": "LaterThanHPA"}},
        "demoted",
        "LaterThanHPA",
    ),
    "malformed conditions": ({"conditions": "none"}, "unreadable", "Unreadable"),
    "malformed evidence": ({"promotion": {"evidence": [{"date": "x"}]}}, "unreadable", "Unreadable"),
    "malformed replicas": ({"targets": {"gpu": {"current": "many"}}}, "unreadable", "Unreadable"),
}


@pytest.mark.parametrize(("status", "word", "reason"), BROKEN.values(), ids=BROKEN)
def test_the_state_of_a_policy_that_needs_attention_is_one_word(policy, status, word, reason):
    row = row_of(policy(**status), NOW)
    assert (row.word, row.reason, row.attention) == (word, reason, True)


@pytest.mark.parametrize(("mode", "word"), [("Off", "off"), ("Auto", "acting")])
def test_a_policy_that_is_well_needs_no_attention(policy, mode, word):
    row = row_of(policy(mode=mode), NOW)
    assert (row.word, row.attention) == (word, False)


def test_replicas_and_the_comparison_with_the_other_autoscaler(policy):
    row = row_of(policy(), NOW)
    assert row.replicas == {"gpu": "2 → 4"}
    assert row.comparison.saved_percent == pytest.approx(20)
    assert (row.comparison.cost, row.comparison.hours) == ("20 % saved", "4.0 GPU-hours")
    assert row.comparison.saved_hours == pytest.approx(4), "10 saved at 2.5 an hour"
    assert (row.comparison.late_percent, row.comparison.other_late_percent) == (pytest.approx(0.4), pytest.approx(0.9))
    assert (row.comparison.when, row.comparison.beside) == ("today", "the HPA formula")


def test_a_policy_that_costs_more_is_dearer(policy):
    body = policy()
    body["status"]["promotion"]["evidence"][0]["cost"] = 55.0
    assert (row_of(body, NOW).comparison.cost, row_of(body, NOW).comparison.hours) == (
        "10 % dearer",
        "2.0 GPU-hours more",
    )


def test_nothing_is_compared_before_there_is_evidence_and_no_request_is_late_while_none_arrives(policy):
    assert row_of(policy(promotion=None), NOW).comparison is None
    quiet = policy()
    quiet["status"]["promotion"]["evidence"][0]["requests"] = 0
    assert row_of(quiet, NOW).comparison.late_percent is None


def test_a_new_object_without_status_and_spec_is_a_row(policy):
    row = row_of({"metadata": {"namespace": "ns", "name": "new"}}, NOW)
    assert (row.word, row.mode, row.service) == ("not seen", "Shadow", "-")


def test_search_filter_order_and_pages(policy):
    bodies = [policy(f"p{number:03}", mode="Shadow" if number % 2 else "Auto") for number in range(ROWS + 5)]
    bodies[7]["status"] |= BROKEN["blind"][0]
    assert (overview(bodies).pages, len(overview(bodies, page=2).rows)) == (2, 5)
    assert overview(bodies, page=99).page == 2
    assert [row.name for row in overview(bodies, text="P007").rows] == ["p007"]
    assert [row.name for row in overview(bodies, only="attention").rows] == ["p007"]
    assert overview(bodies, only="shadow").matching == (ROWS + 5) // 2
    assert overview(bodies, sort="state").rows[0].name == "p007"


@pytest.mark.parametrize(("sort", "first"), [("saved", "cheap"), ("late", "slow")])
def test_rows_without_a_figure_come_last(policy, sort, first):
    none, cheap, slow = policy("a", promotion=None), policy("cheap"), policy("slow")
    cheap["status"]["promotion"]["evidence"][0]["cost"] = 10.0
    slow["status"]["promotion"]["evidence"][0]["late"] = 100.0
    assert [row.name for row in overview([none, cheap, slow], sort=sort).rows][0::2] == [first, "a"]
