"""Queries of policies' own, and answers without an end."""

import asyncio
import tracemalloc

from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.answer import OWN, Bounds
from rlscaler_operator.sensing.prometheus import OWN_AT_ONCE, Prometheus
from rlscaler_operator.sensing.queries import Query
from rlscaler_operator.sensing.results import NOTHING
from tests.harness.telling import series


def crowd(number):
    row = '{"metric":{"__name__":"http_requests_total","path":"/v1/%d","pod":"chat-7d-%d"},"value":[1700000000.1,"1"]}'
    rows = ",".join(row % (i, i) for i in range(number))
    return f'{{"status":"success","data":{{"resultType":"vector","result":[{rows}]}}}}'


async def test_an_answer_is_read_no_further_than_its_bound_and_the_next_one_is_taken(server):
    server.body = crowd(150_000)
    client = Prometheus(Access(server.url), timeout_seconds=30, bounds=Bounds(2**20, 50_000))
    own = [Query("own", "nothing", "http_requests_total")]
    tracemalloc.start()
    size = len(server.body)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    async with asyncio.timeout(60):
        answers = (await client.ask_own("ns", own, ())).answers
    grown = tracemalloc.get_traced_memory()[1] - before - size  # the server of this test copies its answer
    shared = await client.ask([Query("a", "service", "x")])
    tracemalloc.stop()
    assert size > 15 * 2**20
    assert answers["own"].reason == shared["a"].reason == "AnswerTooLarge"
    assert "aggregate it" in str(answers["own"])
    assert "RLSCALER_ANSWER_BYTES" in str(shared["a"])
    assert grown < 2 * 2**20
    assert server.forms[0]["limit"] == [str(OWN.series)]
    server.answer(series())
    assert (await client.ask([Query("a", "service", "x")]))["a"]["ns", "chat"].value == 3.0
    await client.close()


async def test_many_small_series_are_too_many_as_well(server):
    server.body = crowd(101)
    client = Prometheus(Access(server.url), timeout_seconds=10, bounds=Bounds(2**20, 100))
    assert (await client.ask([Query("a", "service", "up")]))["a"].reason == "AnswerTooLarge"
    await client.close()


async def test_own_queries_of_one_namespace_share_a_few_places_and_delay_no_other(server, prometheus):
    server.answer({"metric": {"_": "v"}, "value": [100.0, "7"]})
    server.hold.clear()
    many = [
        asyncio.create_task(prometheus.ask_own("busy", [Query("own", "nothing", f"q{i}")], ()))
        for i in range(3 * OWN_AT_ONCE)
    ]
    async with asyncio.timeout(20):
        while server.asked < OWN_AT_ONCE:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        other = asyncio.create_task(prometheus.ask_own("other", [Query("own", "nothing", "mine")], ()))
        while server.asked < OWN_AT_ONCE + 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert server.forms[-1]["query"] == ["mine"]
    assert server.asked == OWN_AT_ONCE + 1
    server.hold.set()
    for answers in await asyncio.gather(other, *many):
        assert answers.answers["own"][NOTHING].value == 7.0


async def test_what_keeps_own_queries_to_a_namespace_stands_in_the_url(server, prometheus):
    server.answer({"metric": {"_": "v"}, "value": [100.0, "7"]})
    await prometheus.ask_own("ns", [Query("own", "nothing", "up")], (("extra_label", "namespace=ns"),))
    assert server.paths == ["/api/v1/query?extra_label=namespace%3Dns"]


def numbered(number, value="7"):
    return {"metric": {"_": "v", "_q": str(number)}, "value": [100.0, value]}


TWO = [Query("one", "nothing", "sum(a)"), Query("other", "nothing", "sum(b)")]


async def test_own_queries_of_several_policies_are_one_request(server, prometheus):
    server.answer(numbered(1, "8"), numbered(0, "7"))
    answers = (await prometheus.ask_own("ns", TWO, ())).answers
    assert [answers[query.name][NOTHING].value for query in TWO] == [7.0, 8.0]
    assert server.asked == 1
    server.answer(numbered(1, "8"))
    answers = (await prometheus.ask_own("ns", TWO, ())).answers
    assert (answers["one"][NOTHING].reason, answers["other"][NOTHING].value) == ("SeriesAbsent", 8.0)


async def test_one_that_is_refused_spoils_no_other(server, prometheus):
    def spoilt(query):
        return (422, {"error": "bad one"}) if "sum(b)" in query else (200, None)

    server.answer({"metric": {"_": "v"}, "value": [100.0, "7"]})
    server.verdict = spoilt
    answers = (await prometheus.ask_own("ns", TWO, ())).answers
    assert answers["one"][NOTHING].value == 7.0
    assert "bad one" in str(answers["other"])
    assert server.asked == 3
