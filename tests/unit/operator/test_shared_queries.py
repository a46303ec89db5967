"""A shared query that is refused is asked by halves: policies at fault are alone, and all others have readings."""

import math

import pytest

from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing import shared
from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.answer import SLOW, Bounds, divisible, refusal, too_large
from rlscaler_operator.sensing.queries import Query
from rlscaler_operator.sensing.results import Reading, pick
from rlscaler_operator.sensing.subject import Subject

ACCESS = Access("http://prometheus")
SUBJECTS = [Subject("ns", f"s{i}.", (f"s{i}.-gpu", None)) for i in range(16)]
REFUSED = refusal(422, b'{"error": "query processing would load too many samples"}')


class Prometheus:
    """Refuses queries with a guilty service, or with more services than it can bear."""

    def __init__(self):
        self.error, self.guilty, self.most, self.asked = REFUSED, set(), math.inf, []

    async def ask(self, _, queries):
        return {query.name: self.answer(query) for query in queries}

    def answer(self, query):
        services = query.promql.split()
        if query.name == "arrivals":
            self.asked.append(services)
            if self.guilty & set(services) or len(services) > self.most:
                return self.error
        return {("ns", service): Reading(1.0) for service in services}


def build(subjects, _=ACCESS):
    names = " ".join(subject.service for subject in subjects)
    return [Query(name, "service", names) for name in ("arrivals", "latency")] if subjects else []


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(shared.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def prometheus(clock):
    return Prometheus()


@pytest.fixture
def ask(prometheus):
    client = shared.Shared(prometheus, build, 4.0)

    async def unknown(subjects=SUBJECTS):
        """Return the unknown arrivals by service, and the numbers of services in the queries."""
        prometheus.asked.clear()
        answers = await client.ask(ACCESS, subjects, build(subjects))
        assert all(pick(answers["latency"], ("ns", s.service)).known for s in subjects), "of another query"
        readings = {s.service: pick(answers["arrivals"], ("ns", s.service)) for s in subjects}
        missing = {name: reading for name, reading in readings.items() if not reading.known}
        return missing, [len(services) for services in prometheus.asked]

    return unknown


@pytest.mark.parametrize("error", [REFUSED, too_large(Bounds(2**20, 50_000), "50000 series")])
async def test_the_one_at_fault_is_named_with_the_servers_words_and_all_others_have_data(ask, prometheus, error):
    prometheus.guilty, prometheus.error = {"s5."}, error
    missing, asked = await ask()
    assert missing.keys() == {"s5."}
    assert missing["s5."].reason == error.reason
    assert str(error) in missing["s5."].message
    assert "this policy alone" in missing["s5."].message
    assert asked == [16, 8, 4, 4, 2, 1, 1, 2, 8]


async def test_it_is_left_alone_for_a_while_and_asked_with_the_others_when_it_is_well_again(ask, prometheus, clock):
    prometheus.guilty = {"s5."}
    await ask()
    missing, asked = await ask()
    assert missing.keys() == {"s5."}
    assert sorted(asked) == [1, 2, 4, 8], "without the one at fault"
    clock[0] += shared.PAUSE_SECONDS
    assert (await ask())[1] == [15, 1]
    clock[0] += shared.PAUSE_SECONDS
    assert (await ask())[1] == [15], "its pause doubles"
    prometheus.guilty = set()
    clock[0] += shared.PAUSE_SECONDS
    assert await ask() == ({}, [15, 1])
    assert await ask() == ({}, [16])


async def test_several_at_fault_are_each_alone(ask, prometheus):
    prometheus.guilty = {"s0.", "s5.", "s15."}
    assert (await ask())[0].keys() == prometheus.guilty


async def test_where_all_together_are_too_many_they_are_asked_in_parts_for_a_while(ask, prometheus, clock):
    prometheus.most = 10
    assert await ask() == ({}, [16, 8, 8])
    assert await ask() == ({}, [8, 8])
    clock[0] += shared.PAUSE_SECONDS
    prometheus.most = math.inf
    assert await ask() == ({}, [16])


async def test_what_is_slow_is_divided_from_tick_to_tick_and_not_within_one(ask, prometheus):
    prometheus.guilty, prometheus.error = {"s5."}, divisible(MetricsError("not within 4 s", SLOW))
    blind = [len((await ask())[0]) for _ in range(5)]
    assert blind == [16, 8, 4, 2, 1]
    missing, asked = await ask()
    assert missing["s5."].reason == SLOW
    assert sum(asked) == 15


async def test_a_server_that_cannot_be_reached_is_asked_once(ask, prometheus):
    prometheus.guilty, prometheus.error = {"s5."}, MetricsError("nobody there")
    missing, asked = await ask()
    assert (len(missing), asked) == (16, [16])


async def test_those_that_are_due_are_asked_whoever_was_apart_before(ask, prometheus):
    prometheus.guilty = {"s5."}
    await ask()
    assert (await ask(SUBJECTS[4:8]))[0].keys() == {"s5."}
    assert await ask(SUBJECTS[8:]) == ({}, [8])
    assert (await ask([SUBJECTS[5]]))[0].keys() == {"s5."}
