"""Against a real HTTP server that answers as it is told."""

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.prometheus import Prometheus, Sources
from rlscaler_operator.sensing.queries import Query, Window
from tests.harness.waiting import stalls

QUERIES = [Query("a", "service", "up"), Query("b", "service", "down")]


class Server:
    def __init__(self):
        self.status, self.body, self.hold, self.asked = 200, {}, threading.Event(), 0
        self.location = ""
        self.hold.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked += 1
                outer.hold.wait(10)
                text = outer.body if isinstance(outer.body, str) else json.dumps(outer.body)
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(text)))
                if outer.location:
                    self.send_header("Location", outer.location)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def answer(self, *series):
        self.body = {"status": "success", "data": {"resultType": "vector", "result": list(series)}}


@pytest.fixture
def server():
    one = Server()
    yield one
    one.hold.set()
    one.http.shutdown()
    one.http.server_close()


@pytest.fixture
def prometheus(server):
    client = Prometheus(Access(server.url), timeout_seconds=10)
    yield client
    client.close()


def series(value="3", kind="v"):
    return {"metric": {"namespace": "ns", "service": "chat", "_": kind}, "value": [100.0, value]}


async def test_answers_are_grouped(server, prometheus):
    server.answer(series(), series("98", "t"))
    answers = await prometheus.ask(QUERIES)
    assert answers["a"]["ns", "chat"].value == 3.0
    assert answers["a"]["ns", "chat"].age_seconds == 2.0


async def test_a_rate_is_remembered_from_one_tick_to_the_next(server, prometheus):
    queries = [Query("a", "service", "rate(x[10s])", Window(10, 2.0)), Query("b", "service", "y")]
    for at, taken in (("30", "89"), ("30", "99"), ("7", "99")):
        server.answer(series(at), series(taken, "t"))
        answers = await prometheus.ask(queries)
    assert [answers[name]["ns", "chat"].value for name in ("a", "b")] == [30.0, 7.0]
    assert answers["a"]["ns", "chat"].may_lower


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
    client.close()
    assert time.monotonic() - begun - lost.seconds < 1.5
    assert all(isinstance(error, MetricsError) for error in answers.values())
    assert server.asked == 1


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
        client.close()


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
    client.close()
    assert answers["a"].reason == "PrometheusUnreachable"
    assert "0x" not in str(answers["a"])
    assert "refused" in str(answers["a"])


async def test_an_address_that_is_none_is_the_answer_to_every_query_and_logged_once(caplog):
    sources = Sources(timeout_seconds=0.5)
    for _ in range(3):
        answers = await sources.ask(Access("http://["), QUERIES)
        assert {type(error) for error in answers.values()} == {MetricsError}
    sources.close()
    assert len([record for record in caplog.records if record.name == "rlscaler.prometheus"]) <= 1


async def test_a_redirect_leads_nowhere(server, prometheus):
    server.status, server.location = 302, f"{server.url}/elsewhere"
    answers = await prometheus.ask(QUERIES)
    assert "redirects to" in str(answers["a"])
    assert server.asked == 1
