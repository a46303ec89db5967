"""The server of the page: what it shows, who may ask, and how often it asks the API server."""

import asyncio
import hashlib
import json
import shlex
from pathlib import Path

import aiohttp
import pytest

from rlscaler_live.ui import server
from rlscaler_live.ui.commands import commands_of
from rlscaler_live.ui.server import Options
from rlscaler_operator.exceptions import OperatorError
from tests.harness.page import TOKEN, Cluster, served
from tests.unit.ui.test_overview import BROKEN

ALL = "/apis/rlscaler.io/v1alpha1/rlscalingpolicies"
BUDGETS = "/apis/rlscaler.io/v1alpha1/rlscalingbudgets"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


async def test_policies_are_listed_once_and_watched(policy):
    async with served(Cluster([policy()])) as page:
        for _ in range(5):
            assert "2 → 4" in await page.get("/")
        page.cluster.put(policy("new"), "ADDED")
        await page.until("/", "/policies/ns/new")
        for name in ("new", "chat"):
            page.cluster.put(policy(name), "DELETED")
        await page.until("/", "No RLScalingPolicy")
        assert page.cluster.requests == {ALL: 1, BUDGETS: 1, "watch": 2}


async def test_an_unchanged_table_is_not_sent_again(policy):
    async with served(Cluster([policy()])) as page:
        rows = await page.get("/", HX_Request="true")
        assert "<html" not in rows
        assert await page.get(f"/?since={page.page.policies.version}", status=204, HX_Request="true") == ""


async def test_an_empty_cluster_says_what_to_do():
    async with served(Cluster()) as page:
        assert "rlscaler init" in await page.get("/")


async def test_texts_of_strangers_stay_texts(policy):
    body = policy(conditions=[{"type": "Ready", "status": "False", "reason": HOSTILE, "message": HOSTILE}])
    body["spec"]["metrics"] = {"service": HOSTILE}
    body["spec"]["mode"] = HOSTILE
    async with served(Cluster([body])) as page:
        for path in ("/", "/policies/ns/chat", f"/?q={HOSTILE}&only={HOSTILE}&sort={HOSTILE}&page={HOSTILE}"):
            text = await page.get(path)
            assert "<script>alert" not in text
            assert "<img" not in text


async def test_a_policy_is_explained_as_the_commands_explain_it(policy):
    async with served(Cluster([policy()])) as page:
        text = await page.get("/policies/ns/chat")
        assert "Decision 0199aaaa-0000-7000-8000-000000000001" in text
        assert "<caption>Changes by guards</caption>" in text
        assert "-14.0 % cost (-20.0 to -8.0)" in text
        await page.get("/policies/ns/nobody", status=404)


@pytest.mark.parametrize(("status", "word", "reason"), BROKEN.values(), ids=BROKEN)
async def test_a_broken_policy_has_a_page_that_names_the_reason(policy, status, word, reason):
    async with served(Cluster([policy(**status)])) as page:
        text = await page.get("/policies/ns/chat")
        assert word in text
        assert reason in text


def test_commands_are_one_argument_each_and_fit_the_state(policy):
    body = policy()
    body["metadata"]["name"] = "a'; rm -rf ~ #"
    shadow, pause = commands_of(body, "the context")
    assert shlex.split(shadow.text)[3:] == [
        *("a'; rm -rf ~ #", "-n", "ns", "--type", "merge", "-p", '{"spec":{"mode":"Shadow"}}'),
        *("--context", "the context"),
    ]
    assert json.loads(shlex.split(pause.text)[9]) == {"metadata": {"annotations": {"rlscaler.io/paused": "true"}}}
    body["spec"]["mode"], body["metadata"]["annotations"] = "Shadow", {"rlscaler.io/paused-scale-down": "true"}
    assert [command.label for command in commands_of(body, None)] == ["Auto", "Resume"]
    assert json.loads(shlex.split(commands_of(body, None)[1].text)[9]) == {
        "metadata": {"annotations": {"rlscaler.io/paused-scale-down": None}}
    }


async def test_budgets_and_consumers_are_tables(policy):
    member = {
        "namespace": "ns",
        "policy": "chat",
        "granted": 3,
        "asked": 5,
        "borrowed": 1,
        "running": 2,
        "reason": HOSTILE,
    }
    budget = {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingBudget", "metadata": {"name": "pool"}}
    budget["status"] = {"summary": "nvidia.com/gpu 14/16", "fairness": 0.97, "members": [member] * 250}
    reader = policy("reader")
    reader["spec"]["signal"] = {"kafka": {"topics": ["orders", HOSTILE], "group": "billing"}}
    async with served(Cluster([policy(), budget, reader])) as page:
        text = await page.get("/budgets")
        assert "nvidia.com/gpu 14/16" in text
        assert "the first 200 of 250" in text
        assert "<img" not in text + (streams := await page.get("/consumers"))
        assert "billing" in streams
        assert "ns/chat" not in streams
    async with served(Cluster()) as page:
        assert "No RLScalingBudget" in await page.get("/budgets")
        assert "No policy scales the consumers" in await page.get("/consumers")


async def test_without_the_right_to_list_all_namespaces_that_of_the_context_is_shown(policy):
    cluster = Cluster([policy(), policy("other", namespace="elsewhere")])
    cluster.forbidden[ALL] = "nobody may"
    async with served(cluster) as page:
        text = await page.get("/")
        assert "Namespace <b>ns</b>" in text
        assert "elsewhere" not in text


async def test_a_user_without_rights_is_told_which_one_is_missing():
    cluster = Cluster()
    refusal = 'User "eve" cannot list resource "rlscalingpolicies"'
    cluster.forbidden = {ALL: refusal, ALL.replace("/rlscaling", "/namespaces/ns/rlscaling"): refusal}
    async with served(cluster) as page:
        assert "User &#34;eve&#34; cannot list" in await page.get("/")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example:{port}"}, 403),
        ({"Host": "127.0.0.1:1"}, 403),
        ({"Host": "localhost:{port}"}, 200),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "script"}, 403),
        ({"Sec_Fetch_Site": "same-site", "Sec_Fetch_Dest": "empty"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "document"}, 200),
        ({"Sec_Fetch_Site": "same-origin", "Sec_Fetch_Dest": "empty"}, 200),
    ],
)
async def test_other_names_other_pages_and_other_users_are_refused(headers, status):
    async with served(Cluster()) as page:
        await page.get("/", status, **{name: value.format(port=page.port) for name, value in headers.items()})


@pytest.mark.parametrize("cookie", ["", "wrong", "\xe9"])
async def test_without_the_token_nothing_is_shown(cookie):
    async with served(Cluster()) as page, aiohttp.ClientSession() as stranger:
        for path in ("/", "/static/app.css"):
            sent = {"Cookie": f"rlscaler-ui-{page.port}={cookie}"}
            assert (await stranger.get(page.url + path, headers=sent)).status == 401


async def test_the_token_becomes_a_cookie_and_leaves_the_address():
    async with served(Cluster()) as page:
        for token, kept in ((TOKEN, True), ("wrong", False)):
            answer = await page.session.get(f"{page.url}/?q=x&token={token}", allow_redirects=False)
            assert (answer.status, answer.headers["Location"]) == (302, "/?q=x")
            assert ("Set-Cookie" in answer.headers) == kept


@pytest.mark.parametrize("path", ["/", "/static/app.css", "/nowhere", "/static/../server.py"])
async def test_every_answer_forbids_scripts_of_its_own(path):
    async with served(Cluster()) as page:
        answer = await page.session.get(page.url + path)
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert (await page.session.post(page.url + path)).status in (404, 405)


async def test_a_page_that_fails_says_so_under_the_same_headers(policy):
    body = policy()
    body["spec"]["signal"] = {"kafka": "orders"}
    async with served(Cluster([body])) as page:
        answer = await page.session.get(page.url + "/consumers")
        assert answer.status == 500
        assert "this cannot be shown (AttributeError" in await answer.text()
        assert "Content-Security-Policy" in answer.headers


async def test_the_command_prints_an_address_that_opens_the_page(policy, capsys):
    async with served(Cluster([policy()])) as page:
        serving = asyncio.create_task(server.serve(page.page.kube, "ns", Options()))
        async with asyncio.timeout(120):
            while not (printed := capsys.readouterr().out):
                assert not serving.done()
                await asyncio.sleep(0.01)
        address = printed.splitlines()[0]
        assert address.startswith("http://127.0.0.1:")
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as visitor:
            assert "/policies/ns/chat" in await (await visitor.get(address)).text()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        with pytest.raises(OperatorError, match="another with --port"):
            await server.serve(page.page.kube, "ns", Options(port=int(page.port)))


def test_vendored_files_are_those_of_their_packages():
    vendor = Path(server.HERE) / "static" / "vendor"
    table = json.loads((vendor / "vendor.json").read_text())
    sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in vendor.iterdir()}
    assert {name: row["sha256"] for row in table for name, row in row["files"].items()} == {
        name: digest for name, digest in sums.items() if name != "vendor.json"
    }
