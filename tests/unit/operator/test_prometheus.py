"""Against a real HTTP server that answers as it is told."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.answer import OWN, SLOW, Bounds, refusal, series_of
from rlscaler_operator.sensing.prometheus import Prometheus
from rlscaler_operator.sensing.queries import Query, Window, batch
from rlscaler_operator.sensing.sources import Sources
from rlscaler_operator.sensing.subject import Subject
from tests.harness.telling import series
from tests.harness.waiting import stalls

WINDOW = Window(10, 2.0)
QUERIES = [Query("a", "service", "up"), Query("b", "service", "down")]


async def test_answers_are_grouped(server, prometheus):
    server.answer(series(), series("98", "t"))
    answers = await prometheus.ask(QUERIES)
    assert answers["a"]["ns", "chat"].value == 3.0
    assert answers["a"]["ns", "chat"].age_seconds == 2.0


async def test_the_tenant_goes_with_each_query(server):
    server.answer(series())
    client = Prometheus(Access(server.url, headers=(("X-Scope-OrgID", "team-a"),)), timeout_seconds=10)
    await client.ask(QUERIES)
    await client.close()
    assert server.tenant == "team-a"


@pytest.mark.parametrize(
    ("status", "body", "reason", "words"),
    [
        (401, b"no org id\n", "PrometheusUnauthorized", "no org id): check spec.metrics.prometheus.auth.tenant (or"),
        (403, b'{"status":"error","error":"denied by policy"}', "PrometheusUnauthorized", "denied by policy): check"),
        (401, b"", "PrometheusUnauthorized", "(HTTP 401): check spec.metrics.prometheus.auth"),
        (401, b"<html><h1>401</h1>\n<p>Sign in</p></html>", "PrometheusUnauthorized", "(HTTP 401, 401 Sign in)"),
        (503, b'{"error":"query timed out in expression evaluation"}', SLOW, "gave up"),
        (504, b"<html><h1>504 Gateway Time-out</h1></html>", SLOW, "504 Gateway Time-out"),
        (500, b'{"error":"expanding series: context deadline exceeded"}', SLOW, "deadline"),
        (503, b"no healthy upstream", "PrometheusError", "no healthy upstream"),
        (422, b'{"error":"max series 500 reached"}', "PrometheusError", "(HTTP 422): max series 500 reached"),
    ],
)
def test_a_refusal_has_the_servers_own_words(status, body, reason, words):
    error = refusal(status, body)
    assert error.reason == reason
    assert words in str(error)


async def test_a_rate_is_remembered_from_one_tick_to_the_next(server, prometheus):
    queries = [Query("a", "service", "rate(x[10s])", Window(10, 2.0)), Query("b", "service", "y")]
    for at, taken in (("30", "89"), ("30", "99"), ("7", "99")):
        server.answer(series(at), series(taken, "t"))
        answers = await prometheus.ask(queries)
    assert [answers[name]["ns", "chat"].value for name in ("a", "b")] == [30.0, 7.0]
    assert answers["a"]["ns", "chat"].may_lower


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"status":"success","data":{"result":[{"met', "a part of one"),
        (b"\xff\xfe\x00{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b'{"status":"error","errorType":"execution","error":"shard 3 is down"}', "shard 3 is down"),
    ],
)
def test_an_answer_that_cannot_be_read_is_no_absent_series(body, words):
    with pytest.raises(MetricsError, match=words) as error:
        series_of(body, OWN)
    assert error.value.reason == "PrometheusError"


async def test_an_answer_that_is_compressed_against_the_request_says_so(server, prometheus):
    server.encoding = "gzip"
    (answer, *_) = (await prometheus.ask(QUERIES)).values()
    assert "compressed (gzip)" in str(answer)


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, {"error": "boom"}), (200, "<html>"), (200, {"data": {"result": [1, 2]}}), (200, {"data": {"result": "x"}})],
)
async def test_odd_answers_are_errors_with_a_reason(server, prometheus, status, body):
    server.status, server.body = status, body
    answers = await prometheus.ask(QUERIES)
    assert {error.reason for error in answers.values()} == {"PrometheusError"}


async def test_a_prometheus_that_hangs_costs_one_timeout_not_one_a_query(server):
    server.hold.clear()
    client = Prometheus(Access(server.url), timeout_seconds=0.5)
    begun = time.monotonic()
    with stalls() as lost:
        async with asyncio.timeout(30):
            answers = await client.ask(QUERIES)
    await client.close()
    assert time.monotonic() - begun - lost.seconds < 1.5
    assert all(isinstance(error, MetricsError) for error in answers.values())
    assert server.asked == 2, "the first query, and a trivial one"


@pytest.mark.parametrize("place", [0, 1])
async def test_a_query_that_is_slow_is_unknown_alone_and_all_others_are_answered(server, place):
    server.answer(series(), series("98", "t"))
    released = threading.Event()
    server.verdict = lambda query: (200, None) if query != "slow" or released.wait(20) else (500, None)
    queries = [Query(name, "service", name) for name in ("up", "down", "left", "right")]
    queries.insert(place, Query("slow", "service", "slow"))
    client = Prometheus(Access(server.url), timeout_seconds=1.5)
    answers = await client.ask(queries)
    released.set()
    await client.close()
    assert (answers["slow"].reason, answers["slow"].divisible) == (SLOW, True)
    assert all(answers[name]["ns", "chat"].known for name in ("up", "down", "left", "right"))


def test_arrivals_and_latency_are_asked_first():
    names = [query.name for query in batch([Subject("ns", "chat", ("g", "c"), unit="concurrency")], WINDOW, WINDOW)]
    assert names[:3] == ["arrival_rate", "load concurrency", "p95_ms"]


async def test_one_that_hangs_takes_no_thread_from_the_others(server):
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    server.hold.clear()
    hanging, other = (Prometheus(Access(url), timeout_seconds=5) for url in (server.url, "http://127.0.0.1:9"))
    waiting = asyncio.create_task(hanging.ask(QUERIES))
    async with asyncio.timeout(10):
        while not server.asked:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        answers = await other.ask(QUERIES)
    assert "refused" in str(answers["a"])
    server.hold.set()
    await waiting
    for client in (hanging, other):
        await client.close()


async def test_overlapping_batches_wait_for_one_another(server, prometheus):
    server.answer(series())
    server.hold.clear()
    batches = [asyncio.create_task(prometheus.ask(QUERIES)) for _ in range(2)]
    asyncio.get_running_loop().call_later(0.2, server.hold.set)
    for answers in await asyncio.gather(*batches):
        assert answers["b"]["ns", "chat"].value == 3.0


async def test_it_is_busy_while_it_answers_a_batch_and_never_for_long(server, prometheus, monkeypatch):
    server.answer(series())
    server.hold.clear()
    assert not prometheus.busy
    batch = asyncio.create_task(prometheus.ask(QUERIES))
    async with asyncio.timeout(10):
        while not server.asked:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert prometheus.busy
    monkeypatch.setattr("rlscaler_operator.sensing.prometheus.BUSY_SECONDS", 0.0)
    assert not prometheus.busy
    server.hold.set()
    await batch


async def test_nobody_there_has_a_message_without_addresses_in_memory():
    client = Prometheus(Access("http://127.0.0.1:9"), timeout_seconds=0.5)
    answers = await client.ask(QUERIES)
    await client.close()
    assert answers["a"].reason == "PrometheusUnreachable"
    assert "0x" not in str(answers["a"])
    assert "refused" in str(answers["a"])


async def test_an_address_that_is_none_is_the_answer_to_every_query_and_logged_once(caplog):
    sources = Sources(timeout_seconds=0.5, bounds=Bounds(2**20, 100))
    for _ in range(3):
        answers = await sources.ask(Access("http://["), QUERIES)
        assert {type(error) for error in answers.values()} == {MetricsError}
    await sources.close()
    assert len([record for record in caplog.records if record.name == "rlscaler.prometheus"]) <= 1


async def test_a_redirect_leads_nowhere(server, prometheus):
    server.status, server.location = 302, f"{server.url}/elsewhere"
    answers = await prometheus.ask(QUERIES)
    assert "redirects to" in str(answers["a"])
    assert server.asked == 1


async def test_a_hundred_policies_are_asked_for_through_a_proxy_with_buffers_of_8k(server, prometheus):
    server.answer(series())
    subjects = [
        Subject(
            f"team-{i % 10}", f"inference-service-{i}", (f"inference-service-{i}-gpu", f"inference-service-{i}-cpu")
        )
        for i in range(100)
    ]
    queries = batch(subjects, Window(60, 15.0), Window(60, 15.0))
    answers = await prometheus.ask(queries)
    assert {name: answer for name, answer in answers.items() if isinstance(answer, MetricsError)} == {}
    assert server.forms[0]["query"] == [queries[0].promql]


async def test_a_server_that_takes_no_post_is_asked_by_get_from_then_on(server, prometheus):
    server.answer(series())
    server.get_only = True
    for _ in range(2):
        answers = await prometheus.ask(QUERIES[:1])
        assert answers["a"]["ns", "chat"].value == 3.0
    assert server.asked == 3


THANOS = 'fetch series for {receive="eu"}: receive series from Addr: store-1: rpc error: code = Unavailable'


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"warnings": [THANOS]}, "PartialAnswer"),
        ({"warnings": ["No StoreAPIs matched for this query"]}, "PartialAnswer"),
        ({"warnings": ["PromQL info: metric might not be a counter", THANOS]}, "PartialAnswer"),
        ({"isPartial": True}, "PartialAnswer"),
        ({"warnings": ["results truncated due to limit"]}, "AnswerTooLarge"),
        ({"infos": ["PromQL info: metric might not be a counter, name does not end in _total"]}, ""),
        ({"warnings": ["PromQL info: metric might not be a counter"]}, ""),
        ({"warnings": ['PromQL warning: bucket label "le" is missing or has a malformed value of "x"']}, ""),
        ({"warnings": None, "infos": None}, ""),
        ({"warnings": [], "isPartial": False}, ""),
    ],
)
async def test_a_part_is_no_answer_and_remarks_about_expressions_are(server, prometheus, more, reason):
    server.answer(series(), **more)
    answer = (await prometheus.ask(QUERIES[:1]))["a"]
    assert getattr(answer, "reason", "") == reason
    with pytest.raises(MetricsError) if reason else nullcontext():
        await prometheus.instant("up")


async def test_a_part_lowers_nothing_and_the_rate_is_held_as_it_was(server, prometheus):
    queries = [Query("a", "service", "rate(x[10s])", Window(10, 2.0))]
    for value, taken, more in (("100", "80", {}), ("100", "99", {}), ("50", "99.5", {"warnings": [THANOS]})):
        server.answer(series(value), series(taken, "t"), **more)
        answers = await prometheus.ask(queries)
    assert isinstance(answers["a"], MetricsError)
    server.answer(series("100"), series("99.9", "t"))
    assert (await prometheus.ask(queries))["a"]["ns", "chat"].value == 100


async def test_servers_that_can_are_asked_for_all_or_nothing(server, prometheus):
    server.answer(series())
    await prometheus.ask(QUERIES[:1])
    (form,) = server.forms
    assert (form["partial_response"], form["deny_partial_response"], form["limit"]) == (["false"], ["1"], ["50000"])


async def test_one_odd_series_blinds_no_other(server, prometheus):
    server.answer(series(), {"metric": {"namespace": "evil", "_": "v"}, "histogram": [100.0, {"count": "1"}]})
    assert (await prometheus.ask(QUERIES[:1]))["a"]["ns", "chat"].value == 3.0
