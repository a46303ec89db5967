"""Questions of the score plugin: what the suggestion server reads out of them, refuses, and asks for again."""

from __future__ import annotations

import json

import numpy as np
import pytest
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given
from hypothesis import strategies as st

from rlscaler_scheduler.cache import Cache
from rlscaler_scheduler.extender import InvalidCallError
from rlscaler_scheduler.server import Server
from rlscaler_scheduler.settings import Settings
from rlscaler_scheduler.wire import HEADER, MAGIC, ROSTERS, ROW, Question, Rosters
from tests.harness.placed import RESOURCES, cache_of, node, pod

MIB = 2**20


def body(rows, names=(), sent: int = 0, roster: int = 7, about: dict | None = None, magic: bytes = MAGIC) -> bytes:
    """rows: (number, pods, millicores, MiB) of each node."""
    table = np.array([(number, pods, cpu, mib * MIB) for number, pods, cpu, mib in rows], ROW).tobytes()
    text, asked = "\n".join(names).encode(), json.dumps(about or pod("p")).encode()
    return HEADER.pack(magic, len(rows), roster, sent, len(text), len(asked)) + table + text + asked


def rows_of(rosters: Rosters, cache: Cache, content: bytes) -> list[int] | None:
    rows = rosters.rows(Question(content, RESOURCES), cache)
    return None if rows is None else rows.tolist()


def test_names_are_sent_once() -> None:
    cache, rosters = cache_of(node("a"), node("b"), node("c")), Rosters()
    by_name = dict(zip("abc", cache.rows_of("abc").tolist(), strict=True))
    assert rows_of(rosters, cache, body([(1, 0, 0, 0), (0, 0, 0, 0)], ["b", "a"])) == [by_name["a"], by_name["b"]]
    assert rows_of(rosters, cache, body([(1, 0, 0, 0)], sent=2)) == [by_name["a"]]
    assert rows_of(rosters, cache, body([(2, 0, 0, 0)], ["c"], sent=2)) == [by_name["c"]]
    lost = body([(2, 0, 0, 0)], ["c"], sent=2)
    assert rows_of(rosters, cache, lost) == [by_name["c"]], "an answer that was lost: the names come again"
    assert rows_of(rosters, cache, body([(0, 0, 0, 0)], sent=3, roster=8)) is None, "another plugin's roster"
    assert rows_of(Rosters(), cache, body([(0, 0, 0, 0)], sent=3)) is None, "a server that began anew"
    with pytest.raises(InvalidCallError, match="node 9 is none of the 3"):
        rows_of(rosters, cache, body([(9, 0, 0, 0)], sent=3))


def test_rows_follow_nodes_that_come_and_go() -> None:
    cache, rosters = cache_of(node("a"), node("b")), Rosters()
    assert rows_of(rosters, cache, body([(0, 0, 0, 0), (1, 0, 0, 0)], ["b", "new"]))[1] == -1
    cache.change_node(node("new"), False)
    cache.change_node(node("b"), True)
    assert rows_of(rosters, cache, body([(0, 0, 0, 0), (1, 0, 0, 0)], sent=2)) == [-1, *cache.rows_of(["new"])]


def test_the_rosters_that_are_not_used_are_forgotten() -> None:
    cache, rosters = cache_of(node("a")), Rosters()
    for roster in range(ROSTERS + 1):
        rows_of(rosters, cache, body([(0, 0, 0, 0)], ["a"], roster=roster))
    assert rows_of(rosters, cache, body([(0, 0, 0, 0)], sent=1, roster=0)) is None
    assert rows_of(rosters, cache, body([(0, 0, 0, 0)], sent=1, roster=ROSTERS)) == [0]


@given(st.binary(max_size=80), st.integers(0, 60))
def test_bytes_that_are_no_question_are_refused(noise: bytes, cut: int) -> None:
    whole = body([(0, 1, 2, 3)], ["a"])
    for content in (noise, whole[:cut], whole + noise[:1] + b"x", body([(0, 1, 2, 3)], magic=b"RLS9")):
        with pytest.raises(InvalidCallError):
            Question(content, RESOURCES)


@pytest.fixture
async def client(tmp_path):
    server = Server(Settings(decision_log=tmp_path / "log"))
    server.cache.set_nodes([node("a"), node("b"), node("c", "64")])
    server.cache.set_pods([])
    server.suggester.scoring_policies.set([])
    server.suggester.set_namespaces([])
    async with TestClient(TestServer(server.application())) as made:
        made.owner = server
        yield made


async def test_what_kube_scheduler_counts_is_scored_not_what_the_cache_counts(client) -> None:
    names = ["c", "gone", "b", "a"]
    counted = [(0, 0, 0, 0), (1, 3, 9000, 10), (2, 2, 8000, 1024), (3, 0, 0, 0)]
    answer = await client.post("/score", data=body(counted, names))
    content = await answer.read()
    levels, sentence = list(content[:4]), content[4:].decode()
    assert levels[1] == 0, "a node that is not known"
    assert levels[2] == 100, "b has pods that the cache has not seen, so it is in use and is filled first"
    assert max(levels[0], levels[3]) < 100
    assert "b suggested for EE by the rule pack" in sentence
    assert "of 3 nodes; it had requested_cpu 0.5, requested_memory 0.0156, pods 2" in sentence
    line = json.loads(client.owner.settings.decision_log.read_text())
    assert line["node"] == "b"
    assert line["seen"]["pods"] == 2


async def test_answers_without_levels(client) -> None:
    assert (await client.post("/score", data=body([(0, 0, 0, 0)], sent=4))).status == 409
    assert (await client.post("/score", data=body([(0, 0, 0, 0)], ["gone"]))).status == 204
    assert (await client.post("/score", data=b"RLS1")).status == 400
    client.owner.cache.listed.clear()
    assert (await client.post("/score", data=body([(0, 0, 0, 0)], ["a"]))).status == 204
