"""Sentences about two copies: GPU-hours, late requests, and the reaction to a jump that nothing announced."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_dev.demo.results import summarise
from rlscaler_dev.demo.settings import GPU_POOL, HPA, POLICY
from rlscaler_dev.demo.timeline import build_timeline
from rlscaler_dev.demo.words import (
    capacity_sentence,
    change_words,
    cold_sentence,
    reaction,
    ready_capacity,
    sentence,
)  # fmt: skip

from .records_fixture import made_up_run, make_records, make_requests, make_run, make_steps


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ((1, 1), (1, 1), ""),
        ((1, 1), (3, 2), "orders 2 GPU and 1 CPU"),
        ((4, 1), (1, 3), "orders 2 CPU, gives back 3 GPU"),
    ],
)
def test_changes_of_replicas_in_words(before: tuple[int, int], after: tuple[int, int], words: str) -> None:
    pools = ("gpu", "cpu")
    assert change_words(dict(zip(pools, before, strict=True)), dict(zip(pools, after, strict=True))) == words


def test_the_sentence_has_gpu_hours_and_late_requests_of_both_copies() -> None:
    summary = summarise(make_records(run=make_run(contender="hpa")))
    quiet = summarise(make_records(requests=make_requests()))
    text = sentence({HPA: summary, POLICY: {**summary, "slo_violation_ratio": 0.0123, "gpu_replica_seconds": 900.0}})
    assert "rlscaler answered 1.2 % late or not at all, with 0.25 GPU-hours" in text
    assert f"the HPA {100 * summary['slo_violation_ratio']:.1f} % late or not at all, with 0.00 GPU-hours" in text
    assert "none late" in sentence({HPA: quiet, POLICY: quiet})


def test_a_cold_spike_is_said_to_be_nobodys_to_serve_with_the_reaction_of_both() -> None:
    records = made_up_run()
    fast = build_timeline(records)
    idle = {pool: make_steps((-9, 1, 1, 1, 0), columns=4) for pool in ("gpu", "cpu")}
    slow = build_timeline(make_records(run=records.run, offered_rps=records.offered_rps, replicas=idle))
    found = reaction(fast)
    assert found is not None
    assert 0 < found.ordered < found.carried
    text = cold_sentence({HPA: slow, POLICY: fast}, GPU_POOL)
    assert text.startswith("Nobody can serve a jump that nothing announced: a GPU pod takes 35 to 55 s")
    assert "the HPA ordered nothing and never carried it" in text
    assert f"rlscaler ordered after {found.ordered:.0f} s and carried it after {found.carried:.0f} s" in text


def test_replicas_slower_than_declared_carry_less_from_their_second_on_and_a_sentence_says_so() -> None:
    run = make_run(capacity_error=-30.0, capacity_error_after=2.0)
    true, told = build_timeline(make_records(run=run)), build_timeline(make_records())
    assert (ready_capacity(true) / ready_capacity(told)).tolist() == pytest.approx([1.0, 1.0, 0.7, 0.7])
    assert capacity_sentence(make_run(), 20.0) == ""
    assert capacity_sentence(run, 14.26) == (
        "From second 2 on a replica answers 30 % less than the policy declares: 14 requests/s a GPU replica, declared "
        "20, measured by rlscaler 14.3."
    )


def test_without_a_jump_nothing_is_said_of_one() -> None:
    steady = build_timeline(make_records(offered_rps=np.full(4, 2.0)))
    assert cold_sentence({HPA: steady, POLICY: steady}, GPU_POOL) == ""
