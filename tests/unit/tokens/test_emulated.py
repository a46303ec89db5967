"""Pods of a cluster played by the token level: who is ready serves, who leaves drains, and counters are each pod's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rlscaler_loadgen.service.router import Pod
from rlscaler_rl.evaluation.tokens.emulated.load import replicas, story
from rlscaler_rl.evaluation.tokens.emulated.pods import ReplicaBook, VllmCollector, outcomes
from rlscaler_rl.evaluation.tokens.emulated.serve import facts
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.tokens import ledger
from rlscaler_rl.simulation.tokens.level import TokenLevel
from rlscaler_rl.simulation.tokens.servers import SERVERS

SECONDS = 120


@pytest.fixture
def book():
    told = story(SERVERS["8b-a100"], SECONDS, 1, 12)
    return ReplicaBook(TokenLevel(told.services, told.requests))


def pod(name, **columns):
    return Pod(name, "gpu", **columns)


def series(book):
    registry = CollectorRegistry()
    registry.register(VllmCollector(book, "workloads", "chat"))
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            found[sample.name, sample.labels["pod"], sample.labels.get("le", "")] = sample.value
    return found


def of_all(found, name, le=""):
    return sum(value for key, value in found.items() if key[0] == name and key[2] == le)


def play(book, seconds, step=0.5):
    for _ in range(round(seconds / step)):
        book.advance(step)


def test_only_ready_pods_serve_and_the_series_of_all_sum_up_to_the_service(book):
    for name in "abc":
        book.apply(pod(name, ready=name != "c"))
    play(book, 30)
    found, service = series(book), book.level.fleet.service[0]
    assert {key[1] for key in found} == {"a", "b"}
    assert of_all(found, "vllm:prompt_tokens_total") == service["prompt_done"] > 0
    assert of_all(found, "vllm:generation_tokens_total") == service["answer_done"] > 0
    running, waiting = (of_all(found, f"vllm:num_requests_{name}") for name in ("running", "waiting"))
    assert of_all(found, "vllm:request_success_total") == service["attempts"] - running - waiting
    first = np.isfinite(book.level.fleet.first).sum()
    assert of_all(found, "vllm:time_to_first_token_seconds_bucket", "+Inf") == first
    book.apply(pod("c"))
    play(book, 5)
    assert series(book)["vllm:generation_tokens_total", "c", ""] > 0


def test_a_pod_that_leaves_drains_and_another_in_its_slot_counts_from_nothing(book):
    for name in "ab":
        book.apply(pod(name))
    play(book, 30)
    book.apply(pod("b", terminating=True))
    book.remove("b")
    before = series(book)["vllm:request_success_total", "b", ""]
    play(book, 1)
    assert series(book)["vllm:request_success_total", "b", ""] >= before
    play(book, 31)
    assert {key[1] for key in series(book)} == {"a"}
    slot = book.level.order(0)
    book.level.remove(0, slot)
    book.apply(pod("c"))
    assert book.slots["c"] == slot
    assert series(book)["vllm:prompt_tokens_total", "c", ""] == 0
    play(book, SECONDS - 62)
    ledger.check(book.level)


def test_the_last_ready_pod_serves_until_another_is_ready(book):
    book.apply(pod("a"))
    play(book, 5)
    book.remove("a")
    play(book, 5)
    assert "a" in book.slots
    book.apply(pod("b"))
    play(book, 40)
    assert list(book.slots) == ["b"]
    ledger.check(book.level)


def test_an_outcome_is_kept_of_every_request_that_came(book):
    for name in "abcdefgh":
        book.apply(pod(name))
    play(book, SECONDS)
    columns = outcomes(book.level)
    assert len(columns["arrived"]) == len(book.level.requests.arrived) == book.level.fleet.service[0]["arrived"]
    assert np.nanpercentile(columns["first"], 50) < 2.5
    assert columns["need"].sum() == pytest.approx(replicas(SECONDS).sum(), rel=0.3)


def test_a_server_that_cannot_carry_the_load_is_named():
    slow = replace(SERVERS["8b-l40s"], label="slow", prompt_ms=0.25, kv_tokens=60_000)
    with pytest.raises(ScenarioError, match=r"slow cannot answer chat, rag and reasoning .*--server"):
        story(slow, 60, 1, 12)


def test_the_policy_declares_the_usual_mix():
    told = facts(story(SERVERS["8b-a100"], 60, 1, 12))
    tokens = told["tokens_per_second"] / told["requests_per_second"]
    assert told["answer_weight"] > 1
    assert 500 < tokens < 10_000
