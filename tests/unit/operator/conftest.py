import asyncio
import gzip
import json
import threading

import pytest
from kubernetes.aio.client import Configuration

from rlscaler_core.decision.batch import Entry, decide_all, fresh_state
from rlscaler_core.decision.rule import Rule
from rlscaler_core.decision.tables import make_params, make_samples
from rlscaler_core.models import load_bundled
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.loop.wiring import build_engine
from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.prometheus import Prometheus
from rlscaler_operator.settings import Settings
from tests.harness.budgets import Bench
from tests.harness.serving import Quiet, serving
from tests.harness.telling import TellingServer


@pytest.fixture(scope="session")
def rule():
    return Rule()


@pytest.fixture(scope="session")
def ppo():
    return load_bundled("ppo")


@pytest.fixture(scope="session")
def entry(rule):
    """A policy's row of a batch, under a load that two pools of two carry easily."""

    def make(kind="action", actor=rule, replicas=(2, 2), rate=20.0, **params):
        table = make_params(1, requests_per_second=(20.0, 4.0), **params)
        samples = make_samples(
            1,
            time=100.0,
            arrival_rate=rate,
            cpu_utilization=50.0,
            gpu_utilization=50.0,
            p95_ms=100.0,
            spec_replicas=replicas,
            ready_replicas=replicas,
        )
        return Entry(table, fresh_state(actor, replicas, 100.0), samples, kind, actor)

    return make


@pytest.fixture(scope="session")
def policy_body():
    """A policy of the Deployment chat-gpu as the API server gives it."""

    def make(name="chat", **metadata):
        return {
            "apiVersion": "rlscaler.io/v1alpha1",
            "kind": "RLScalingPolicy",
            "metadata": {
                "namespace": "ns",
                "name": name,
                "uid": name,
                "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                **metadata,
            },
            "spec": {
                "mode": "Auto",
                "targets": {"gpu": {"deployment": f"{name}-gpu", "maxReplicas": 4}},
                "slo": {"latencyMilliseconds": 500},
            },
            "status": {},
        }

    return make


@pytest.fixture
def log(tmp_path):
    """Write records as JSON lines, and strings as they are; return the path of the log."""

    def write(*records, name="audit.jsonl"):
        text = "".join(r if isinstance(r, str) else json.dumps(r, allow_nan=False) + "\n" for r in records).encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return path

    return write


def merged(there, patch):
    """What a merge patch (RFC 7396) makes of a JSON value."""
    if not isinstance(patch, dict):
        return patch
    result = dict(there) if isinstance(there, dict) else {}
    for name, value in patch.items():
        result.pop(name, None) if value is None else result.update({name: merged(result.get(name), value)})
    return result


class ApiServer:
    """Answers every request with `text`, and a write with what was written when `text` is empty.

    `answers` are other texts by path and query, and `statuses` other statuses. `objects`, by path and query, take merge
    patches and are the answer to them. `sent` has the method and the body of each request.
    """

    def __init__(self):
        self.text, self.status, self.asked = "{}", 200, 0
        self.paths, self.answers, self.objects, self.sent = [], {}, {}, []
        self.statuses = {}
        self.slow_path, self.hold = "", threading.Event()
        outer = self

        class Handler(Quiet):
            def do_GET(self):  # noqa: N802
                outer.asked += 1
                if outer.slow_path and outer.slow_path in self.path:
                    outer.hold.wait(10)
                outer.paths.append(self.path.partition("?")[0])
                sent = self.body()
                outer.sent.append((self.command, sent.decode()))
                if self.command == "PATCH" and self.path in outer.objects and outer.status == 200:
                    outer.objects[self.path] = merged(outer.objects[self.path], json.loads(sent))
                    outer.answers[self.path] = json.dumps(outer.objects[self.path])
                text = outer.answers.get(self.path, outer.text).encode() or sent
                self.answer(outer.statuses.get(self.path, outer.status), text)

            do_PUT = do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815

        self.handler, self.url = Handler, ""


@pytest.fixture
def api_server():
    one = ApiServer()
    with serving(one.handler) as one.url:
        yield one
        one.hold.set()


@pytest.fixture
async def kube(api_server):
    client = Kube(Configuration(host=api_server.url))
    yield client
    await client.close()


@pytest.fixture
async def engine(kube):
    """The whole loop, with nothing but the API server's stand-in to talk to."""
    settings = Settings(gather_seconds=0, prometheus_url="http://127.0.0.1:9", lease_seconds=60)
    made = build_engine(settings, kube)
    yield made
    await made.sensing.sources.close()


@pytest.fixture
def server():
    one = TellingServer()
    with serving(one.handler) as one.url:
        yield one
        one.hold.set()


@pytest.fixture
async def prometheus(server):
    client = Prometheus(Access(server.url), timeout_seconds=10)
    yield client
    await client.close()


@pytest.fixture
async def bench(kube):
    one = Bench(kube, Settings())
    yield one
    await asyncio.gather(*one.tasks)


@pytest.fixture
def asks(entry, rule):
    """What comes out for a policy alone that asks for so many GPU replicas."""

    def make(replicas, running=1, kind="action"):
        one = entry(kind, actor=rule, replicas=(running, 0), rate=1.0, min_replicas=(replicas, 0))
        one.samples.spec_replicas[:] = running, 0
        outcome = decide_all([one])[0]
        assert outcome.decision.desired[0, 0] == replicas
        return outcome

    return make
