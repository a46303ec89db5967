"""The page of `rlscaler ui` in headless Chromium, as a user starts it, on the real API server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.exceptions import ApiError
from tests.harness import setup
from tests.harness.browser import CHROMIUM, MISSING, SECONDS, browser
from tests.unit.ui.conftest import body
from tests.unit.ui.test_overview import BROKEN
from tests.unit.ui.test_server import HOSTILE

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]

SPACE, OTHER = "page", "page-other"
API = "/apis/rlscaler.io/v1alpha1/namespaces"
MERGE = "application/merge-patch+json"
WORDS = "[...document.querySelectorAll('tbody tr')].map(row => row.textContent)"
SUMMARY = "document.querySelector('.summary').textContent"


@pytest.fixture(scope="module")
def kube(cluster) -> Iterator[KubeClient]:
    with KubeClient.from_kubeconfig(cluster.kubeconfig) as client:
        setup.install(client)
        for namespace in (SPACE, OTHER):
            client.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        yield client
        for namespace in (SPACE, OTHER):
            client.delete(f"/api/v1/namespaces/{namespace}")


def create(kube: KubeClient, policy: dict[str, Any]) -> None:
    """Create a policy and write its status as an operator does."""
    space, name = policy["metadata"]["namespace"], policy["metadata"]["name"]
    annotations = policy["metadata"].get("annotations", {})
    bare = {**policy, "metadata": {"namespace": space, "name": name, "annotations": annotations}}
    path = f"{API}/{space}/rlscalingpolicies"
    kube.request("POST", path, {key: value for key, value in bare.items() if key != "status"})
    report(kube, space, name, policy["status"])


def report(kube: KubeClient, space: str, name: str, status: dict[str, Any]) -> None:
    path = f"{API}/{space}/rlscalingpolicies/{name}/status"
    kube.request("PATCH", path, {"status": status}, content_type=MERGE)


@asynccontextmanager
async def page(kubeconfig: Path, *options: str) -> AsyncIterator[str]:
    """Run the command until the block ends; yields the address that it prints."""
    command = ("-m", "rlscaler_live.cli", "ui", "--kubeconfig", str(kubeconfig), "--port", "0", *options)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=pipe)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(SECONDS):
            address = (await process.stdout.readline()).decode().strip()
        yield address
    finally:
        process.kill()
        await process.wait()


def below(address: str, path: str) -> str:
    """Return the address of another screen, with the token."""
    home, _, token = address.partition("?")
    return f"{home.rstrip('/')}{path}?{token}"


async def test_policies_that_are_broken_are_shown_with_their_reason_and_change_by_themselves(cluster, kube):
    stored, refused = {}, {}
    for number, (status, word, reason) in enumerate(BROKEN.values()):
        policy = body(f"p-{number:02}", namespace=SPACE, **status)
        stored[policy["metadata"]["name"]] = (word, reason)
        try:
            create(kube, policy)
        except ApiError as error:
            refused[stored.pop(policy["metadata"]["name"])] = error.status
            kube.delete(f"{API}/{SPACE}/rlscalingpolicies/{policy['metadata']['name']}")
    # The schema keeps a status that no operator writes out of the cluster.
    assert refused == {("unreadable", "Unreadable"): 422}
    assert len(stored) == 10
    async with page(cluster.kubeconfig, "-n", SPACE) as address, browser() as tab:
        await tab.open(address)
        for name, (word, reason) in stored.items():
            row = f"{WORDS}.find(text => text.includes('{name}'))"
            await tab.until(f"({row} || '').includes({word!r}) && {row}.includes({reason!r})")
        name = next(iter(stored))
        await tab.run(f"[...document.querySelectorAll('tbody a')].find(link => link.textContent === '{name}').click()")
        await tab.until(f"location.pathname === '/policies/{SPACE}/{name}' && document.readyState === 'complete'")
        report(kube, SPACE, name, body()["status"])
        await tab.until("document.querySelector('#head .word').textContent === 'acting'")
        assert tab.problems == []


async def test_texts_of_strangers_run_nothing(cluster, kube):
    wrong = {"type": "Ready", "status": "False", "reason": "Wrong", "message": HOSTILE}
    policy = body("hostile", namespace=OTHER)
    policy["metadata"]["annotations"] = {"rlscaler.io/paused": HOSTILE}
    policy["spec"]["metrics"] = {"prometheus": {"url": "http://" + HOSTILE}}
    policy["status"]["conditions"] = [{**policy["status"]["conditions"][0], **wrong}]
    create(kube, policy)
    async with page(cluster.kubeconfig, "-n", OTHER) as address, browser() as tab:
        for path in ("/", f"/policies/{OTHER}/hostile"):
            await tab.open(below(address, path))
            await tab.until("document.querySelector('main').textContent.includes('onerror=alert(1)')")
            assert await tab.run("document.querySelectorAll('main img, main script').length") == 0
        assert tab.problems == []


async def test_a_user_sees_the_namespace_that_may_be_listed_and_is_told_the_right_that_is_missing(
    cluster, kube, tmp_path
):
    create(kube, body("visible", namespace=OTHER))
    create(kube, body("hidden", namespace=SPACE))
    rules = [{"apiGroups": ["rlscaler.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
    kube.request("POST", setup.ACCOUNTS, {"metadata": {"name": "reader"}})
    setup.grant(kube, "reader", "page", rules, OTHER)
    limited = setup.write_kubeconfig(tmp_path / "kubeconfig", cluster.kubeconfig, setup.token(kube, account="reader"))
    config = yaml.safe_load(limited.read_text())
    config["contexts"][0]["context"]["namespace"] = OTHER
    limited.write_text(yaml.safe_dump(config))
    try:
        # All namespaces may not be listed: that of the context is shown in their place.
        async with page(limited) as address, browser() as tab:
            await tab.open(address)
            await tab.until(f"{WORDS}.some(text => text.includes('visible'))")
            assert not await tab.run(f"{WORDS}.some(text => text.includes('hidden'))")
        async with page(limited, "-n", SPACE) as address, browser() as tab:
            await tab.open(address)
            await tab.until("/may not|forbidden|cannot list/.test(document.body.textContent)")
    finally:
        kube.delete(f"{setup.ACCOUNTS}/reader")


async def test_a_thousand_policies_are_one_list_and_one_watch(cluster, kube):
    space = "page-thousand"
    kube.request("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: create(kube, body(f"p{number:04}", namespace=space)), range(1000)))
        async with page(cluster.kubeconfig, "-n", space) as address, browser() as tab:
            await tab.open(address)
            await tab.until(f"{SUMMARY}.includes('1,000 policies')")
            assert "need" not in await tab.run(SUMMARY)
            report(kube, space, "p0500", BROKEN["blind"][0])
            await tab.until(f"{SUMMARY}.includes('1 need')")
            assert tab.problems == []
    finally:
        kube.request("DELETE", f"{API}/{space}/rlscalingpolicies")
        kube.delete(f"/api/v1/namespaces/{space}")
