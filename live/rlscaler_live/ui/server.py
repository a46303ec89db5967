"""The web server of the page: its routes, and the watches behind them."""

from __future__ import annotations

import asyncio
import secrets
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import yaml
from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rlscaler_core.api import PLURAL
from rlscaler_core.api.budget import BUDGET_PLURAL
from rlscaler_live.ui.chart import RANGES
from rlscaler_live.ui.commands import commands_of, patch
from rlscaler_live.ui.decisions import DecisionLog
from rlscaler_live.ui.guard import LOOPBACK, TOKEN, door
from rlscaler_live.ui.objects import Collection, Json
from rlscaler_live.ui.overview import SORTS, evidence_of, overview, row_of
from rlscaler_live.ui.parts import attempted
from rlscaler_live.ui.policy import PolicyData
from rlscaler_live.ui.prometheus import Reach
from rlscaler_live.ui.tables import budgets, consumers
from rlscaler_live.ui.what_if import Change, sentence
from rlscaler_operator.cli.pages import detail
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.exceptions import OperatorError, RecordError

HERE = Path(__file__).parent

MOST_SECONDS = 1e10
"""Unix seconds beyond which no time is meant."""

LISTED_SECONDS = 5.0
"""Longest wait of a page for the first list; after it the page says that nothing is known yet."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command."""

    port: int = 0
    opens: bool = False
    namespace: str | None = None
    """The only namespace that is shown; None: all that may be listed."""
    context: str | None = None
    prometheus_url: str | None = None
    """Prometheus as it is reached from here; None: the one that a policy names, through the API server."""
    decision_logs: tuple[Path, ...] = ()
    models: tuple[Path, ...] = ()
    """Actors of the logs that are not bundled."""


async def serve(kube: Kube, namespace: str, options: Options) -> None:
    """Serve the page until cancelled. `namespace` is that of the context. Raises OperatorError for a used port."""
    token = secrets.token_urlsafe(16)
    page = Page(kube, namespace, options)
    runner = web.AppRunner(page.app(token), handle_signals=False, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, LOOPBACK, options.port)
        try:
            await site.start()
        except OSError as error:
            text = f"{LOOPBACK}:{options.port} cannot be used ({error.strerror}): name another with --port, 0 for any"
            raise OperatorError(text) from error
        port = runner.addresses[0][1]
        address = f"http://{LOOPBACK}:{port}/?{TOKEN}={token}"
        click.echo(f"{address}\nread-only; Ctrl-C ends it")
        if options.opens:
            await asyncio.to_thread(webbrowser.open, address)
        await page.follow()
    finally:
        await runner.cleanup()


class Page:
    """The pages of one cluster."""

    def __init__(self, kube: Kube, namespace: str, options: Options) -> None:
        self.kube, self._options = kube, options
        only, fallback = options.namespace, None if options.namespace else namespace
        self.policies = Collection(lambda: kube.api, PLURAL, only, fallback)
        self.budgets = Collection(lambda: kube.api, BUDGET_PLURAL)
        log = DecisionLog(options.decision_logs, options.models) if options.decision_logs else None
        self._data = PolicyData(Reach(kube, options.prometheus_url), log)
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def app(self, token: str) -> web.Application:
        """Return the application; every request needs `token`."""
        app = web.Application(middlewares=[door(token)])
        app.add_routes(
            [
                web.get("/", self._overview),
                web.get("/budgets", self._budgets),
                web.get("/consumers", self._consumers),
                web.get("/policies/{namespace}/{name}", self._policy),
                web.get("/policies/{namespace}/{name}/what-if", self._what_if),
                web.get("/policies/{namespace}/{name}/preflight", self._preflight),
                web.get("/policies/{namespace}/{name}/decision", self._decision),
                web.get("/policies/{namespace}/{name}/series.json", self._series),
                web.get("/policies/{namespace}/{name}/hpa.json", self._hpa),
                web.static("/static", HERE / "static"),
            ]
        )
        return app

    async def follow(self) -> None:
        """Follow the cluster until cancelled."""
        await asyncio.gather(self.policies.follow(), self.budgets.follow())

    async def _overview(self, request: web.Request) -> web.Response:
        query = request.query
        if query.get("since") == str(self.policies.version):
            return web.Response(status=204)
        await _listed(self.policies)
        sort = query.get("sort", "")
        filters = {
            "text": query.get("q", "").strip()[:100],
            "only": query.get("only", ""),
            "sort": sort if sort in SORTS else SORTS[0],
        }
        number = query.get("page", "")
        shown = overview(self.policies.objects.values(), page=int(number) if number.isdecimal() else 1, **filters)
        template = "overview_rows.html" if "HX-Request" in request.headers else "overview.html"
        return self._render(template, {"shown": shown, "filters": filters, "policies": self.policies, "sorts": SORTS})

    async def _policy(self, request: web.Request) -> web.Response:
        body = await self._found(request)
        return self._render(
            "policy.html",
            {
                **await self._explained(request, body),
                "row": row_of(body),
                "policies": self.policies,
                "commands": commands_of(body, self._options.context),
                "state": attempted(detail, body),
                "ranges": RANGES,
                "evidence": _evidence(body),
            },
        )

    async def _decision(self, request: web.Request) -> web.Response:
        return self._render("decision.html", await self._explained(request, await self._found(request)))

    async def _explained(self, request: web.Request, body: Json) -> Json:
        """Return the context of a page about the decision at the time in the address, or about the newest decision."""
        at, metadata = _time(request), body["metadata"]
        here = f"/policies/{quote(metadata['namespace'])}/{quote(metadata['name'])}"
        explained = await self._data.explained(body, at)
        return {"explained": explained, "at": at, "range": _range(request), "here": here}

    async def _series(self, request: web.Request) -> web.Response:
        body = await self._found(request)
        return web.json_response(await self._data.charts(body, _range(request), _time(request)))

    async def _what_if(self, request: web.Request) -> web.Response:
        body, context = await self._found(request), dict[str, Any](trouble="", sides=[])
        try:
            change = Change.of(request.query)
            if not change.spec():
                raise ValueError("nothing is changed: fill in one of the fields")
            sides = await self._data.play(body, change)
            command = patch(body, change.spec(), self._options.context)
            text = yaml.safe_dump(change.spec(), sort_keys=False)
            context |= {"sides": sides, "sentence": sentence(sides), "yaml": text, "patch": command}
        except (RecordError, ValueError) as error:
            context["trouble"] = str(error)
        return self._render("what_if.html", context)

    async def _preflight(self, request: web.Request) -> web.Response:
        body = await self._found(request)
        checks, trouble = await self._data.doctor(self.kube, body, self._options.prometheus_url)
        return self._render("preflight.html", {"checks": checks, "trouble": trouble})

    async def _budgets(self, request: web.Request) -> web.Response:
        await _listed(self.budgets)
        nothing = "No RLScalingBudget is here: policies share no GPUs."
        context = {"title": "Budgets", "tab": "/budgets", "nothing": nothing, "trouble": self.budgets.trouble}
        return self._render("tables.html", {**context, "parts": budgets(self.budgets.objects.values())})

    async def _consumers(self, request: web.Request) -> web.Response:
        await _listed(self.policies)
        nothing = "No policy scales the consumers of a stream (spec.signal.kafka)."
        context = {"title": "Consumers", "tab": "/consumers", "nothing": nothing, "trouble": self.policies.trouble}
        return self._render("tables.html", {**context, "parts": consumers(self.policies.objects.values())})

    async def _hpa(self, request: web.Request) -> web.Response:
        return web.json_response(await self._data.hpa(await self._found(request)))

    async def _found(self, request: web.Request) -> Json:
        """Return the policy that the address names. Raises HTTPNotFound."""
        await _listed(self.policies)
        key = request.match_info["namespace"], request.match_info["name"]
        body = self.policies.objects.get(key)
        if body is None:
            raise web.HTTPNotFound(text=f"RLScalingPolicy {'/'.join(key)[:200]} is not here. {self.policies.trouble}")
        return body

    def _render(self, template: str, context: Mapping[str, Any]) -> web.Response:
        where = self._options.context or self.kube.configuration.host
        text = self._templates.get_template(template).render({"where": where, "tab": "/", **context})
        return web.Response(text=text, content_type="text/html")


def _evidence(body: Json) -> tuple[str, str]:
    try:
        return evidence_of(body)
    except (AttributeError, KeyError, TypeError, ValueError):
        return "", ""  # the row of the policy says that it cannot be read


def _range(request: web.Request) -> str:
    name = request.query.get("range", "")
    return name if name in RANGES else "6h"


def _time(request: web.Request) -> float | None:
    """Return the time in the address; None where it is none."""
    try:
        at = float(request.query.get("at", ""))
    except ValueError:
        return None
    return at if 0 < at < MOST_SECONDS else None


async def _listed(collection: Collection) -> None:
    try:
        async with asyncio.timeout(LISTED_SECONDS):
            await collection.listed.wait()
    except TimeoutError:
        pass
