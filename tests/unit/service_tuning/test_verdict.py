"""What speaks for a policy and what against it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from rlscaler_rl.evaluation.schema import Difference, RecordedHistory, ServiceRow, ServiceTraining, ServiceVerdict
from rlscaler_rl.evaluation.service_tuning.report import text_report
from rlscaler_rl.evaluation.service_tuning.verdict import decide
from rlscaler_rl.training.chooser import Candidate
from rlscaler_rl.training.finetune import FineTuned

FOUND = FineTuned(best=Candidate(1000, None, 1.0, 1.0))


def row(name, role, percent=None, spread=1.0):
    difference = None
    if percent is not None:
        low, high = percent - spread, percent + spread
        verdict = "win" if high < 0 else "loss" if low > 0 else "undecided"
        figures = {"percent": percent, "low_percent": low, "high_percent": high}
        difference = Difference(mean=percent / 20, low=low / 20, high=high / 20, verdict=verdict, **figures)
    columns = {"j": 5.0, "cost_per_hour": 12.0, "late_percent": 0.2, "p95_ms": 300.0}
    return ServiceRow(
        name=name, label=name, role=role, gpu_replicas=2, cpu_replicas=4, difference=difference, **columns
    )


def rows(hpa=-5.0, rule=-4.0, today=-30.0, general=-1.5):
    listed = [row("policy", "policy"), row("hpa_tuned", "tuned", hpa), row("rule_tuned", "tuned", rule)]
    return [*listed, row("static_today", "today", today), row("general", "contender", general)]


def reasons(service, history, made, found=FOUND, broken=()):
    publish, said = decide(made, history, found, service, broken)
    return publish, "; ".join(said)


def test_better_than_both_tuned_rivals_is_published(service, history):
    publish, said = reasons(service, replace(history, smooth=False), rows())
    assert publish
    assert said.startswith("better than both: J -5.0 % [-6.0, -4.0] against hpa_tuned and -4.0 %")


def test_almost_as_good_is_enough_on_a_smooth_load_only(service, history):
    close = rows(hpa=1.5)
    assert reasons(service, history, close)[0]
    publish, said = reasons(service, replace(history, smooth=False), close)
    assert not publish
    assert "+1.5 % [+0.5, +2.5] against hpa_tuned" in said


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"today": 9.0}, r"static_today is better by 9\.0 % \[8\.0, 10\.0\]"),
        ({"general": 2.0}, r"general is better by 2\.0 %"),
        ({"hpa": 8.0}, r"not shown to be within 2 % of both tuned rivals"),
    ],
)
def test_whoever_is_better_stands_against_it(service, history, change, named):
    publish, said = reasons(service, history, rows(**change))
    assert not publish
    assert re.search(named, said)


@pytest.mark.parametrize(
    ("missing_seconds", "steps", "broken", "named"),
    [
        (1800, 1000, [], "30 min more"),
        (0, 0, [], "nothing better than the general policy"),
        (0, 1000, ["broken meter: billing"], "broken meter"),
    ],
    ids=["too little history", "a start that stayed the best", "a broken meter"],
)
def test_other_reasons_against_it_are_named(service, history, missing_seconds, steps, broken, named):
    short = replace(history, missing_seconds=missing_seconds)
    tuned = FineTuned(best=Candidate(steps, None, 1.0, 1.0))
    publish, said = reasons(service, short, rows(), tuned, broken)
    assert not publish
    assert named in said


def make_verdict(publish: bool = True, digest: str = "") -> ServiceVerdict:
    recorded = RecordedHistory(
        source="day.csv",
        seconds=86_400,
        digest="d" * 64,
        peak_rps={"train": 90.0, "tune": 80.0, "test": 85.0},
        blocks={"train": 86, "tune": 21, "test": 36},
        rise=0.07,
        smooth=True,
    )
    training = ServiceTraining(
        start="bundled ppo",
        steps=2_000_000,
        seconds=140.0,
        cut_short=False,
        best_steps=1_500_000,
        tune_j={0: 4.7, 1_500_000: 4.5},
        tuned={"hpa": {"default": 5.5, "tuned": 4.9}},
    )
    return ServiceVerdict(
        publish=publish,
        reasons=("better than both",),
        caveats=("one day only",),
        name="chat",
        namespace="demo",
        policy_digest=digest or "a" * 64,
        general_digest="b" * 64,
        level="request",
        episode_seconds=600,
        episodes=72,
        history=recorded,
        training=training,
        rows=tuple(rows()),
    )


def test_the_report_begins_with_the_verdict_and_survives_its_file():
    verdict = make_verdict()
    again = ServiceVerdict.model_validate_json(verdict.model_dump_json(by_alias=True))
    assert again == verdict
    text = text_report(again)
    assert text.splitlines()[0] == "demo/chat: publish"
    assert "-5.0 % [-6.0, -4.0] win" in text
    assert "one day only" in text
    assert max(map(len, text.splitlines())) <= 140
    assert text_report(make_verdict(publish=False)).splitlines()[0] == "demo/chat: do not publish"
