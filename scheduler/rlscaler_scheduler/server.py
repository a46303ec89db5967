"""The server: watches, calls of kube-scheduler, suggestions for people, metrics and probes. All on one event loop."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple, TypeVar
from weakref import WeakSet

from aiohttp import web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler
from kubernetes.aio import client
from pydantic import ValidationError

from rlscaler_core.decision.exceptions import ContractMismatchError, ModelError
from rlscaler_core.placement.actor import PlacementActor
from rlscaler_core.placement.mask import fits
from rlscaler_core.placement.policies import EXTENDER_LEVELS, PLUGIN_LEVELS, Policy
from rlscaler_scheduler.cache import Cache
from rlscaler_scheduler.callers import Callers, brings, token_of
from rlscaler_scheduler.connections import api_configuration
from rlscaler_scheduler.door import LIMITS, Door, listen
from rlscaler_scheduler.extender import Call, InvalidCallError
from rlscaler_scheduler.intake import MEBI, Intake, RefusedError, check_json
from rlscaler_scheduler.objects import PodFacts, Resources, as_pods
from rlscaler_scheduler.overrides import Override, Overrides
from rlscaler_scheduler.records import Records
from rlscaler_scheduler.replay import inputs
from rlscaler_scheduler.settings import SchedulerError, Settings
from rlscaler_scheduler.suggest import Suggester, Suggestion
from rlscaler_scheduler.watches import followers
from rlscaler_scheduler.wire import Question, Rosters, answer

log = logging.getLogger("rlscaler.scheduler")

FOR_ALL = ("/metrics", "/healthz", "/readyz")
"""Paths for callers that are not known: Prometheus and the kubelet show no certificate."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")

LARGEST_OVERRIDE = 64 * 1024
"""Bytes of an override."""

NOT_READY, OTHER_SCHEDULER = "not_ready", "other_scheduler"
"""Reasons to have no opinion."""


Asked = TypeVar("Asked", Call, Question)


class Networks(NamedTuple):
    """Networks of a folder."""

    actors: dict[Policy, PlacementActor]
    unfit: dict[Policy, str]
    """Why the network of a policy is none for this release: it was made for other features, or another policy."""


def load_networks(folder: Path | None) -> Networks:
    """The networks in the folder. Raises SchedulerError for one that is damaged, or where there is none at all."""
    networks = Networks({}, {})
    if folder is None:
        return networks
    policies = [policy for policy in Policy if (folder / f"{policy}.json").is_file()]
    if not policies:
        raise SchedulerError(
            f"{folder}: has no {', '.join(f'{policy}.json' for policy in Policy)}: name a folder that "
            "`rlscaler scheduler train` wrote, or leave --model-dir out and the rules act"
        )
    for policy in policies:
        try:
            networks.actors[policy] = PlacementActor.load(folder, policy)
        except ContractMismatchError as error:
            log.warning("%s; the rule of %s acts", error, policy)
            networks.unfit[policy] = str(error)
        except ModelError as error:
            raise SchedulerError(str(error)) from error
    return networks


class Server:
    """The HTTP handlers and their shared state."""

    def __init__(self, settings: Settings) -> None:
        """Raises SchedulerError."""
        self.settings = settings
        self.cache = Cache(Resources(settings.gpu_resource, settings.gpu_milli_resource), settings.assumed_seconds)
        networks = load_networks(settings.model_dir)
        self.suggester = Suggester(self.cache, Overrides(), settings, networks.actors, unfit=networks.unfit)
        try:
            self.records = Records(settings.decision_log)
        except OSError as error:
            raise SchedulerError(f"{error.filename}: {error.strerror}; name a file that may be used") from error
        self._token = token_of(settings.token_file)
        self.callers = Callers(settings.tls_folder, settings.caller_token_file)
        self.records.open.set(self.callers.open)
        self._known: WeakSet[asyncio.BaseTransport] = WeakSet()
        self.rosters = Rosters()
        self.intake = Intake(int(settings.largest_call_mib * MEBI))
        self._busy = 0

    def application(self) -> web.Application:
        """All routes."""
        app = web.Application(client_max_size=LARGEST_OVERRIDE, middlewares=[self._enter])
        app.add_routes(
            [
                web.post("/filter", self.filter),
                web.post("/prioritize", self.prioritize),
                web.post("/score", self.score),
                web.get("/suggestions", self.show),
                web.put("/suggestions", self.override),
                web.get("/metrics", self.metrics),
                web.get("/healthz", self.alive),
                web.get("/readyz", self.ready),
            ]
        )
        app.on_cleanup.append(self._close)
        return app

    @web.middleware
    async def _enter(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in callers that are known; all others see metrics and probes alone."""
        if request.path not in FOR_ALL and not self.callers.open:
            # Reading suggestions is for those who may override them, too.
            if not (self.callers.known(request) or brings(request, self._token)):
                self.records.declined.labels("unknown_caller").inc()
                text = "show a client certificate of the server's ca.crt, or send `Authorization: Bearer TOKEN`"
                return web.json_response({"error": text}, status=401)
            if request.transport is not None:
                self._known.add(request.transport)
        return await handler(request)

    def knows(self, handler: RequestHandler) -> bool:
        """Whether a known caller has called on this connection."""
        return handler.transport in self._known

    async def _close(self, application: web.Application) -> None:
        del application
        self.records.close()
        self.intake.close()

    def not_ready(self) -> str:
        """Why there are no suggestions yet; empty = there are."""
        missing = {"nodes", "pods"} - self.cache.listed
        if not self.suggester.namespaces_listed:
            missing.add("namespaces")
        if not self.suggester.scoring_policies.listed:
            missing.add("NodeScoringPolicies")
        return f"{', '.join(sorted(missing))} were not listed yet" if missing else ""

    async def filter(self, request: web.Request) -> web.Response:
        """Refuse nodes above the pod's hard latency, for an extender."""
        return await self._answer(request, "filter", self._call, self._filter)

    async def prioritize(self, request: web.Request) -> web.Response:
        """Order the nodes, for an extender."""
        return await self._answer(request, "prioritize", self._call, self._prioritize)

    async def score(self, request: web.Request) -> web.Response:
        """Order the nodes, for the score plugin."""
        return await self._answer(request, "score", lambda body: Question(body, self.cache.resources), self._score)

    def _call(self, body: bytes) -> Call:
        check_json(body)
        return Call(json.loads(body), self.cache.resources)

    def _filter(self, call: Call, declined: str) -> web.Response:
        """Limits are no opinion: where they are not known, a strict extender has to wait, and another goes on."""
        if declined == NOT_READY:
            return web.json_response({"error": self.not_ready()}, status=503)
        refused = {} if declined == OTHER_SCHEDULER else self.suggester.refused(call.facts, call.names)
        return web.json_response(call.filtered(refused))

    def _prioritize(self, call: Call, declined: str) -> web.Response:
        if declined:
            return web.json_response(call.prioritized([0] * len(call.names)))
        # The pod is placed anew, so that its former suggestion no longer holds a node.
        self.cache.release(call.facts.uid)
        suggestion = self.suggester.suggest(call.facts, self.cache.rows_of(call.names))
        self._made(suggestion)
        return web.json_response(call.prioritized(suggestion.levels(EXTENDER_LEVELS).tolist()))

    def _score(self, question: Question, declined: str) -> web.Response:
        if declined:
            return web.Response(status=204)
        rows = self.rosters.rows(question, self.cache)
        if rows is None:
            return web.Response(status=409)
        self.cache.release(question.facts.uid)
        suggestion = self.suggester.suggest(question.facts, rows, question.counted)
        if not suggestion.chosen:
            return web.Response(status=204)
        self._made(suggestion)
        return web.Response(body=answer(suggestion.levels(PLUGIN_LEVELS), suggestion.sentence()))

    def _made(self, suggestion: Suggestion) -> None:
        """Count the pod on the chosen node from now on, and write the record."""
        if suggestion.chosen:
            if not self.cache.assume(suggestion.facts, suggestion.chosen):
                self.records.unseen.inc()
            self.records.add(
                {"time": round(time.time(), 3), **suggestion.shown()},
                {"inputs": inputs(suggestion)} if self.settings.decision_log_inputs else {},
                len(suggestion.wished.problems),
            )

    async def _answer(
        self,
        request: web.Request,
        verb: str,
        read: Callable[[bytes], Asked],
        answer_to: Callable[[Asked, str], web.Response],
    ) -> web.Response:
        began = time.perf_counter()
        # Calls that are still being read count too: they hold memory.
        self._busy += 1
        try:
            async with self.intake.body(request) as body:
                call = await self.intake.read(read, body)
                reason = self._declines(call.facts)
                if reason:
                    self.records.declined.labels(reason).inc()
                return answer_to(call, reason)
        except TimeoutError:
            return web.json_response({"error": "the call was not sent whole"}, status=408)
        except RefusedError as error:
            self.records.declined.labels(error.reason).inc()
            return web.json_response({"error": str(error)}, status=error.status)
        except (InvalidCallError, json.JSONDecodeError, UnicodeDecodeError) as error:
            self.records.declined.labels("invalid").inc()
            return web.json_response({"error": str(error)}, status=400)
        except Exception:
            log.exception("a call of kube-scheduler failed; it places the pod without a suggestion")
            self.records.declined.labels("fault").inc()
            return web.json_response({"error": "the suggestion server failed; its log has the reason"}, status=500)
        finally:
            self._busy -= 1
            self.records.seconds.labels(verb).observe(time.perf_counter() - began)

    def _declines(self, facts: PodFacts) -> str:
        """Why a call is answered without an opinion; empty = it is not."""
        if self.not_ready():
            return NOT_READY
        names = self.settings.scheduler_names
        if names and facts.scheduler not in names:
            return OTHER_SCHEDULER
        return "busy" if self._busy > self.settings.most_waiting else ""

    async def show(self, request: web.Request) -> web.Response:
        """Overrides and the last suggestions; with ?namespace=&pod= the present suggestion for a pending pod."""
        namespace, pod = request.query.get("namespace", "default"), request.query.get("pod")
        if pod is None:
            return web.json_response(
                {
                    "overrides": self.suggester.overrides.shown(),
                    "scoring_policies": self.suggester.scoring_policies.shown(),
                    "suggestions": list(self.records.last)[::-1],
                }
            )
        facts = self.cache.pending.get((namespace, pod))
        if facts is None or self.cache.assumed(facts.uid):
            matches = [
                record for record in self.records.last if (record["namespace"], record["pod"]) == (namespace, pod)
            ]
            if matches:
                return web.json_response(matches[-1])
        if facts is None:
            text = f"no pod {namespace}/{pod} is pending, and none was suggested a node lately"
            return web.json_response({"error": text}, status=404)
        rows = self.cache.rows_of(self.cache.names())
        _, nodes = self.cache.nodes_at(rows)
        return web.json_response(self.suggester.suggest(facts, rows[fits(nodes, as_pods(facts))]).shown())

    async def override(self, request: web.Request) -> web.Response:
        """Set an override; with the token alone."""
        if self._token is None:
            return web.json_response({"error": "overrides are off: start the server with --token-file"}, status=403)
        if not brings(request, self._token):
            return web.json_response({"error": "send the token as `Authorization: Bearer TOKEN`"}, status=401)
        try:
            async with self.intake.body(request, LARGEST_OVERRIDE) as body:
                wanted = Override.model_validate_json(body)
            self.suggester.overrides.put(wanted)
        except ValidationError as error:
            faults = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors())
            return web.json_response({"error": faults}, status=400)
        except TimeoutError:
            return web.json_response({"error": "the override was not sent whole"}, status=408)
        except RefusedError as error:
            return web.json_response({"error": str(error)}, status=error.status)
        except ValueError as error:
            return web.json_response({"error": str(error)}, status=409)
        return web.json_response({"overrides": self.suggester.overrides.shown()})

    async def metrics(self, request: web.Request) -> web.Response:
        """Prometheus's text format."""
        del request
        nodes, pods, assumed = self.cache.counts
        self.records.nodes.set(nodes)
        self.records.pods.labels("assumed").set(assumed)
        self.records.pods.labels("bound").set(pods - assumed)
        self.records.measured.set(self.suggester.node_metrics.fresh)
        for policy, breaker in self.suggester.breakers.items():
            self.records.breaker.labels(policy).set(breaker.open)
        return web.Response(body=self.records.render(), content_type="text/plain", charset="utf-8")

    async def alive(self, request: web.Request) -> web.Response:
        """The event loop turns."""
        del request
        return web.Response(text="ok")

    async def ready(self, request: web.Request) -> web.Response:
        """Nodes and pods are known."""
        del request
        why = self.not_ready()
        return web.Response(text=why or "ok", status=503 if why else 200)


async def run(settings: Settings) -> None:
    """Serve until cancelled. Raises SchedulerError where it cannot begin."""
    server = Server(settings)
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(client.ApiClient(await api_configuration(settings.kubeconfig)))
        runner = web.AppRunner(server.application(), access_log=None, **LIMITS)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        try:
            listener = stack.enter_context(listen(settings.host, settings.port))
        except OSError as error:
            raise SchedulerError(f"{settings.host}:{settings.port}: {error.strerror}; choose another --port") from error
        log.info("listening on %s:%d", settings.host, listener.getsockname()[1])
        assert runner.server is not None
        if server.callers.open and settings.host not in LOOPBACK:
            log.warning(
                "OPEN: everyone who reaches %s:%d may ask for suggestions and so move placements; "
                "name --tls-folder with a ca.crt, or --caller-token-file",
                settings.host,
                listener.getsockname()[1],
            )
        door = Door(runner.server, server.knows, server.callers.tls)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(door.serve(listener))
            for follower in followers(api, server.cache, server.suggester):
                tasks.create_task(follower.run())
            tasks.create_task(server.suggester.node_metrics.run())
