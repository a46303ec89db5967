"""The page in headless Chromium: layout at two sizes and in two schemes, clicks, keys, hostile texts, accessibility.

With RLSCALER_PICTURES=docs/images the pictures of docs/operations/ui.md are taken again.
"""

import base64
import hashlib
import os
import shutil
import subprocess
import tarfile
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.harness.browser import CHROMIUM, MISSING, NARROW, WIDE, browser
from tests.harness.page import TOKEN, Cluster, served
from tests.unit.ui.conftest import condition
from tests.unit.ui.test_overview import BROKEN
from tests.unit.ui.test_server import HOSTILE

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]

AXE = ("axe-core@4.14.1", "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==")
SERIOUS = """axe.run(document, {resultTypes: ["violations"]}).then(({violations}) =>
  violations.filter(({impact}) => impact === "serious" || impact === "critical")
    .map(({id, nodes}) => `${id}: ${nodes.slice(0, 3).map((node) => node.html).join(" ")}`.slice(0, 500)))"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CHART = """(() => { const box = document.querySelector(".u-over").getBoundingClientRect();
  return [box.x + box.width * SHARE, box.y + 60]; })()"""
DRAWN = "!!document.querySelector('#charts[data-complete] canvas')"


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """The script of axe-core, from npm, checked by its digest."""
    if shutil.which("npm") is None:
        pytest.skip("no npm is installed, which brings axe-core")
    folder = tmp_path_factory.mktemp("axe")
    done = subprocess.run(["npm", "pack", "--silent", AXE[0]], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"npm does not bring axe-core: {done.stderr[-200:]}")
    (archive,) = folder.glob("*.tgz")
    assert base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode() == AXE[1]
    with tarfile.open(archive) as files:
        script = files.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


@pytest.fixture(scope="module")
def log(decision_log):
    return decision_log(240, time.time() - 60)


@pytest.fixture
def bodies(policy):
    broken = [
        policy(name.replace(" ", "-"), "Shadow" if number % 3 else "Auto", "shop", **status)
        for number, (name, (status, _, _)) in enumerate(BROKEN.items())
    ]
    reader = policy("billing", namespace="shop")
    reader["spec"]["signal"] = {"kafka": {"topics": ["orders"], "group": "billing"}}
    member = {
        "namespace": "ns",
        "policy": "chat",
        "granted": 3,
        "asked": 5,
        "borrowed": 1,
        "running": 2,
        "reason": "Share",
    }
    budget = {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingBudget", "metadata": {"name": "pool"}}
    budget["status"] = {
        "summary": "nvidia.com/gpu 14/16 (5 borrowed)",
        "fairness": 0.97,
        "members": [member],
        "policies": 1,
    }
    return [policy(), *broken, reader, budget]


def address(page, path):
    return f"{page.url}{path}{'&' if '?' in path else '?'}token={TOKEN}"


async def test_screens_fit_both_sizes_and_schemes_without_a_serious_finding(bodies, log, axe):
    screens = {
        "policies": "/",
        "policy": "/policies/ns/chat?range=1h",
        "budgets": "/budgets",
        "consumers": "/consumers",
    }
    async with served(Cluster(bodies), decision_logs=(log,)) as page, browser() as tab:
        for name, path in screens.items():
            for size in (WIDE, NARROW):
                for scheme in ("light", "dark"):
                    await tab.look(size, scheme)
                    await tab.open(address(page, path))
                    if name == "policy":
                        await tab.until(DRAWN)
                        await tab.click(*await tab.run(CHART.replace("SHARE", "0.5")))
                        await tab.until("document.getElementById('decision').textContent.includes('Decided again')")
                    place = (name, size, scheme)
                    assert await tab.run(OVERFLOW) <= 0, place
                    await tab.run(axe + "; 0")
                    assert await tab.run(SERIOUS) == [], place
        assert tab.problems == []


async def test_a_chart_is_used_by_mouse_and_by_keys_and_its_address_shows_the_same(policy, log):
    async with served(Cluster([policy()]), decision_logs=(log,)) as page, browser() as tab:
        await tab.look(WIDE)
        await tab.open(address(page, "/policies/ns/chat?range=1h"))
        await tab.until(DRAWN)
        await tab.click(*await tab.run(CHART.replace("SHARE", "0.5")))
        await tab.until("document.getElementById('decision').textContent.includes('Decided again')")
        first = await tab.run("document.querySelector('#decision pre').textContent")
        link = await tab.run("location.href")
        assert "at=" in link
        await tab.run("document.querySelector('.u-over').focus()")
        await tab.press("ArrowRight")
        await tab.press("Enter")
        await tab.until(f"document.querySelector('#decision pre').textContent !== {first!r}")
        await tab.open(link)
        assert await tab.run("document.querySelector('#decision pre').textContent") == first
        await tab.run("document.querySelector('[name=min_gpu]').value = 5")
        await tab.run("document.querySelector('#if ~ form button').click()")
        await tab.until("document.getElementById('what-if').textContent.includes('minReplicas: 5')")
        assert tab.problems == []


async def test_a_policy_is_reached_by_keys_alone_and_a_command_is_copied(policy):
    async with served(Cluster([policy()])) as page, browser() as tab:
        await tab.look(WIDE)
        await tab.open(address(page, "/"))
        for _ in range(20):
            await tab.press("Tab")
            if await tab.run("document.activeElement.textContent") == "chat":
                break
        await tab.press("Enter")
        await tab.until("location.pathname === '/policies/ns/chat' && document.readyState === 'complete'")
        await tab.run("document.querySelector('[data-copy=c1]').click()")
        await tab.until("/Copied|selected/.test(document.getElementById('copied').textContent)")
        assert "kubectl patch rlsp chat -n ns" in await tab.run("document.getElementById('c1').textContent")


async def test_a_page_whose_command_has_ended_does_not_look_like_new(policy):
    async with browser() as tab:
        async with served(Cluster([policy()])) as page:
            await tab.open(address(page, "/"))
            assert await tab.run("document.getElementById('lost').hidden")
        await tab.until("document.getElementById('lost').textContent.includes('has ended')")


async def test_the_state_of_an_open_policy_follows_the_cluster(policy):
    cluster = Cluster([policy()])
    async with served(cluster) as page, browser() as tab:
        await tab.open(address(page, "/policies/ns/chat"))
        assert "acting" in await tab.run("document.getElementById('head').textContent")
        cluster.put(policy(**BROKEN["blind"][0]))
        await tab.until("document.querySelector('#head .word').textContent === 'fallback'")
        assert tab.problems == []


async def test_texts_of_strangers_run_nothing(policy):
    wrong = {"type": "Ready", "status": "False", "reason": HOSTILE, "message": HOSTILE}
    body = policy(conditions=[wrong], lastDecision=None, history=[])
    body["metadata"]["annotations"] = {HOSTILE: HOSTILE}
    body["spec"]["metrics"] = {"service": HOSTILE, "prometheus": {"url": HOSTILE}}
    async with served(Cluster([body])) as page, browser() as tab:
        for path in ("/", "/policies/ns/chat", "/?q=" + "%3Cscript%3Ealert(1)%3C/script%3E"):
            await tab.open(address(page, path))
            assert await tab.run("document.querySelectorAll('main img, main script').length") == 0
        assert tab.problems == []


async def test_a_thousand_policies_have_pages_and_change_by_themselves(policy):
    cluster = Cluster(policy(f"p{number:04}") for number in range(1000))
    async with served(cluster) as page, browser() as tab:
        await tab.open(address(page, "/?sort=state"))
        assert "1,000 policies" in await tab.run("document.querySelector('.summary').textContent")
        assert await tab.run("document.querySelectorAll('tbody tr').length") == 100
        await tab.run("document.querySelector('[rel=next]').click()")
        await tab.until("location.search.includes('page=2') && document.readyState === 'complete'")
        cluster.put(policy("p0999", **BROKEN["blind"][0]))
        await tab.open(address(page, "/?sort=state"))
        cluster.put(policy("p0500", **BROKEN["blind"][0]))
        await tab.until("document.querySelector('.summary').textContent.includes('2 need attention')")
        assert cluster.requests["watch"] == 2, "one watch of policies and one of budgets"


@pytest.mark.skipif("RLSCALER_PICTURES" not in os.environ, reason="takes the pictures of the documentation")
async def test_pictures_of_the_documentation(policy, log):
    folder = Path(os.environ["RLSCALER_PICTURES"])
    today = datetime.now(UTC).date().isoformat()

    def body(name, cost, late, **changes):
        made = policy(name, namespace="workloads", **changes)
        day = made["status"]["promotion"]["evidence"][0]
        day |= {"date": today, "cost": cost, "late": late}
        return made

    absent = condition("Ready", "False", "SeriesAbsent", "no series counts the arrivals of speech: see docs/metrics.md")
    paused = condition("Paused", "True", "PausedByAnnotation", "rlscaler.io/paused: replicas stay as they are")
    ready = condition("Ready", "True", "Ready")
    shadow = body("search", 44.0, 9.0)
    shadow["spec"]["mode"], shadow["status"]["promotion"]["against"] = "Shadow", "Running"
    shadow["status"]["conditions"] = [ready, condition("Active", "False", "Shadow")]
    chat = body("chat", 43.0, 4.0)
    chat["metadata"]["namespace"] = "ns"  # as in the log
    bodies = [
        chat,
        shadow,
        body("captions", 55.0, 2.0, conditions=[ready, paused]),
        body("speech", 50.0, 9.0, conditions=[absent]),
    ]
    async with served(Cluster(bodies), decision_logs=(log,), context="production") as page, browser() as tab:
        for name, path, size, scheme in (
            ("ui-policies", "/", (1100, 560), "light"),
            ("ui-policy", "/policies/ns/chat?range=1h", (1100, 1000), "dark"),
        ):
            await tab.look(size, scheme)
            await tab.open(address(page, path))
            if name == "ui-policy":
                await tab.until(DRAWN)
                await tab.click(*await tab.run(CHART.replace("SHARE", "0.5")))
                await tab.until("document.getElementById('decision').textContent.includes('Decided again')")
            (folder / f"{name}.png").write_bytes(await tab.picture(whole=False))
