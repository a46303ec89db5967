"""Against a real HTTP server that answers as an API server would."""

import asyncio
import json
import threading

import pytest
from kubernetes.aio.client import Configuration

from rlscaler_operator.cluster import references
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.cluster.references import Name, References, Source
from rlscaler_operator.exceptions import CredentialError

LOADING, RELEASE = threading.Event(), threading.Event()


@pytest.fixture(autouse=True)
def closed():
    LOADING.clear()
    RELEASE.clear()


NAME = Name("ns", "chat", "token")


def load(name, body):
    text = body["data"][name.key]
    if text == "forever":
        LOADING.set()
        RELEASE.wait(10)
    if text == "garbage":
        raise CredentialError("garbage", "SecretInvalid")
    return text


def source(keeps):
    return Source("Secret", "secrets", load, keeps, CredentialError, "create it")


def answer(api_server, token="one", version="1", uid="u"):
    api_server.status = 200
    api_server.text = json.dumps({"metadata": {"uid": uid, "resourceVersion": version}, "data": {"token": token}})


def refuse(api_server, status):
    api_server.status, api_server.text = status, json.dumps({"message": f"said {status}"})


@pytest.fixture
def held(api_server, monkeypatch):
    """What is held after each of some steps; every step is followed by a look."""
    monkeypatch.setattr(references, "RETRY_SECONDS", 0.0)

    def look(*steps, keeps=False, after=lambda: None):
        async def run():
            configuration = Configuration()
            configuration.host = api_server.url
            kube = Kube(configuration, timeout_seconds=2.0)
            changes = []
            known = References(kube, source(keeps), 0.0, lambda: changes.append(1))
            first = known.get(NAME)
            assert first.pending
            seen = []
            for step in steps:
                step()
                await known.refresh()
                one = known.get(NAME)
                seen.append((one.value, one.error.reason if one.error else None))
            await kube.close()
            after()
            return seen, len(changes)

        return asyncio.run(run())

    return look


def test_what_is_read_is_read_again_only_when_its_version_changes(held, api_server):
    steps = [lambda: answer(api_server), lambda: answer(api_server, "two"), lambda: answer(api_server, "two", "2")]
    seen, changes = held(*steps)
    assert seen == [("one", None), ("one", None), ("two", None)]
    assert changes == 2
    assert api_server.asked == 1 + 1 + 2


def test_an_object_that_was_made_anew_is_read_although_its_version_is_the_same(held, api_server):
    seen, _ = held(lambda: answer(api_server), lambda: answer(api_server, "two", uid="other"))
    assert seen[-1] == ("two", None)


@pytest.mark.parametrize(("status", "reason"), [(404, "SecretMissing"), (403, "SecretForbidden")])
@pytest.mark.parametrize("keeps", [True, False])
def test_an_object_that_went_away_ends_its_value_or_not(held, api_server, status, reason, keeps):
    steps = [lambda: answer(api_server), lambda: refuse(api_server, status), lambda: answer(api_server, "two")]
    seen, _ = held(*steps, keeps=keeps)
    assert seen[1] == ("one" if keeps else None, reason)
    assert seen[2] == ("two", None), "it is read again once it is back, whatever its version"


def test_what_is_forbidden_is_said_with_the_command_that_grants_this_object_and_no_other(api_server):
    who = "system:serviceaccount:rlscaler-system:rlscaler"
    refused = f'secrets "chat" is forbidden: User "{who}" cannot get resource "secrets" in API group "" in "ns"'

    async def run(message):
        api_server.status, api_server.text = 403, json.dumps({"message": message})
        kube = Kube(Configuration(host=api_server.url), timeout_seconds=2.0)
        known = References(kube, source(False), 0.0)
        known.get(NAME)
        await known.refresh()
        await kube.close()
        return str(known.get(NAME).error)

    said = asyncio.run(run(refused))
    role = "rlscaler-secret-chat"
    assert f"kubectl create role {role} -n ns --verb=get --resource=secrets --resource-name=chat && " in said
    assert f"kubectl create rolebinding {role} -n ns --role={role} --serviceaccount=rlscaler-system:rlscaler" in said
    assert "grant the operator's ServiceAccount the verb get (no)" in asyncio.run(run("no"))


def test_an_error_of_the_api_server_ends_nothing(held, api_server):
    seen, _ = held(lambda: answer(api_server), lambda: refuse(api_server, 500), lambda: answer(api_server, "2", "2"))
    assert seen == [("one", None), ("one", None), ("2", None)]


def test_an_error_before_anything_was_read_is_said(held, api_server):
    seen, _ = held(lambda: refuse(api_server, 500))
    assert seen == [(None, "ApiServerError")]


@pytest.mark.parametrize("keeps", [True, False])
def test_garbage_is_refused_and_not_read_twice(held, api_server, keeps):
    steps = [
        lambda: answer(api_server),
        lambda: answer(api_server, "garbage", "2"),
        lambda: answer(api_server, "garbage", "2"),
        lambda: answer(api_server, "three", "3"),
    ]
    seen, _ = held(*steps, keeps=keeps)
    kept = "one" if keeps else None
    assert seen[1:] == [(kept, "SecretInvalid"), (kept, "SecretInvalid"), ("three", None)]
    assert api_server.asked == 1 + 2 + 1 + 2


def test_an_object_that_takes_forever_holds_up_nothing(held, api_server, monkeypatch):
    monkeypatch.setattr(references, "LOAD_SECONDS", 0.05)
    seen, _ = held(lambda: answer(api_server, "forever"), after=RELEASE.set)
    assert seen == [(None, "SecretUnavailable")]


def test_an_object_that_is_loaded_for_long_delays_no_other(api_server):
    async def run():
        configuration = Configuration()
        configuration.host = api_server.url
        kube = Kube(configuration)
        news = asyncio.Event()
        known = References(kube, source(False), 30.0, news.set)
        answer(api_server, "forever")
        slow = known.get(NAME)
        running = asyncio.create_task(known.run())
        await asyncio.to_thread(LOADING.wait, 10)
        answer(api_server, "two")
        other = known.get(Name("ns", "other", "token"))
        await asyncio.wait_for(news.wait(), 10)
        found = other.value, slow.pending
        RELEASE.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await kube.close()
        return found

    assert asyncio.run(run()) == ("two", True)


def test_an_object_that_nobody_asks_for_is_forgotten(api_server, monkeypatch):
    monkeypatch.setattr(references, "FORGET_SECONDS", 0.0)

    async def run():
        configuration = Configuration()
        configuration.host = api_server.url
        kube = Kube(configuration)
        known = References(kube, source(False), 30.0)
        known.get(NAME)
        await known.refresh()
        await kube.close()

    asyncio.run(run())
    assert api_server.asked == 0


class Loader:
    """Loads tokens; `slow` of the loads wait for `release`, and `broken` of them fail in a way that nobody foresaw."""

    def __init__(self, slow=0, broken=0):
        self.slow, self.broken, self.loads = slow, broken, 0
        self.release = threading.Event()

    def __call__(self, name, body):
        self.loads += 1
        if self.loads <= self.slow:
            self.release.wait(10)
        if self.loads <= self.broken:
            raise MemoryError("starved")
        return body["data"][name.key]


async def looked_at(api_server, loader, *steps):
    """What is held after each step and the look that follows it."""
    kube = Kube(Configuration(host=api_server.url), timeout_seconds=2.0)
    known = References(kube, Source("Secret", "secrets", loader, False, CredentialError, "create it"), 0.0)
    known.get(NAME)
    seen = []
    for step in steps:
        step()
        if loader.release.is_set() and (begun := known.get(NAME).loading):
            await asyncio.wait({begun[1]})
        await known.refresh()
        one = known.get(NAME)
        seen.append((one.value, one.error is not None))
        one.looked_at = float("-inf")
    loader.release.set()
    await kube.close()
    return seen


async def test_a_load_that_was_late_once_is_taken_when_it_is_done(api_server, monkeypatch):
    """The disk, the processor or the executor was busy for a while: nothing is wrong with the object."""
    monkeypatch.setattr(references, "LOAD_SECONDS", 0.05)
    loader = Loader(slow=1)
    answer(api_server)
    seen = await looked_at(api_server, loader, lambda: None, lambda: None, loader.release.set)
    assert seen == [(None, True), (None, True), ("one", False)]
    assert loader.loads == 1, "it is not loaded a second time while the first load runs"


async def test_an_endless_load_keeps_one_thread_and_the_next_version_is_loaded(api_server, monkeypatch):
    monkeypatch.setattr(references, "LOAD_SECONDS", 0.05)
    loader = Loader(slow=1)
    answer(api_server)
    again = [lambda: None] * 5
    seen = await looked_at(api_server, loader, *again, lambda: answer(api_server, "two", "2"))
    assert seen[:5] == [(None, True)] * 5
    assert seen[5] == ("two", False)
    assert loader.loads == 2


async def test_a_load_that_failed_in_an_unforeseen_way_is_tried_again(api_server, monkeypatch):
    monkeypatch.setattr(references, "RETRY_SECONDS", 0.0)
    answer(api_server)
    loader = Loader(broken=2)
    seen = await looked_at(api_server, loader, *[lambda: None] * 4)
    assert seen == [(None, True), (None, True), ("one", False), ("one", False)]
    assert loader.loads == 3
