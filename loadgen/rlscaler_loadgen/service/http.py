"""The HTTP face of the service: Open Inference Protocol v2 and the metrics page.

<https://github.com/open-inference/open-inference-protocol>, HTTP/REST. An answer's headers `X-Rlscaler-Pool` and
`X-Rlscaler-Pod` name the pod that served it. The result is the request's own input, passed through: only the duration
of the answer is emulated.
"""

from __future__ import annotations

import asyncio
import json
from importlib.metadata import version
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

from rlscaler_loadgen.service.metrics import ServiceMetrics
from rlscaler_loadgen.service.router import Router, UnavailableError

MODEL_VERSION = "1"
POOL_HEADER, POD_HEADER = "X-Rlscaler-Pool", "X-Rlscaler-Pod"


class Api:
    """Handlers over one router.

    models: names that are served; empty = any name.
    """

    def __init__(self, router: Router, metrics: ServiceMetrics, name: str, models: tuple[str, ...] = ()) -> None:
        self.router, self.metrics, self.name, self.models = router, metrics, name, models

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/v2", self.server),
                web.get("/v2/health/live", self.live),
                web.get("/v2/health/ready", self.ready),
                web.get("/v2/models/{model}", self.model),
                web.get("/v2/models/{model}/ready", self.model_ready),
                web.post("/v2/models/{model}/infer", self.infer),
            ]
        )
        return app

    async def server(self, request: web.Request) -> web.Response:
        return web.json_response({"name": self.name, "version": version("rlscaler"), "extensions": []})

    async def live(self, request: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def ready(self, request: web.Request) -> web.Response:
        ready = self.router.ready()
        return web.json_response({"ready": ready > 0, "replicas": ready}, status=200 if ready else 503)

    async def model(self, request: web.Request) -> web.Response:
        name = self._model(request)
        tensor = {"datatype": "FP32", "shape": [-1]}
        return web.json_response(
            {
                "name": name,
                "versions": [MODEL_VERSION],
                "platform": "rlscaler_emulated",
                "inputs": [{"name": "input", **tensor}],
                "outputs": [{"name": "output", **tensor}],
            }
        )

    async def model_ready(self, request: web.Request) -> web.Response:
        name, ready = self._model(request), self.router.ready() > 0
        return web.json_response({"name": name, "ready": ready}, status=200 if ready else 503)

    async def infer(self, request: web.Request) -> web.Response:
        """Wait in a replica's queue and be served; 400, 404 and 503 as `{"error": ...}`."""
        model = self._model(request)
        payload = _inference_request(await request.read())
        loop, pools = asyncio.get_running_loop(), []
        begun = loop.time()

        def routed(pool: str) -> None:
            pools.append(pool)
            self.metrics.arrived(pool)

        try:
            answer = await self.router.serve(routed)
        except UnavailableError as unavailable:
            self.metrics.ended(unavailable.pool, "503", None)
            return _error(503, str(unavailable), {POOL_HEADER: unavailable.pool})
        except asyncio.CancelledError:
            if pools:
                self.metrics.ended(pools[0], "499", loop.time() - begun)
            raise
        self.metrics.ended(pools[0], "200", loop.time() - begun)
        body = {
            "model_name": model,
            "model_version": MODEL_VERSION,
            **({"id": payload["id"]} if "id" in payload else {}),
            "parameters": {
                "queue_ms": round(answer.waited_seconds * 1000, 3),
                "compute_ms": round(answer.served_seconds * 1000, 3),
            },
            "outputs": [{**tensor, "name": "output"} for tensor in payload["inputs"][:1]],
        }
        return web.json_response(body, headers={POOL_HEADER: answer.pool, POD_HEADER: answer.pod})

    def _model(self, request: web.Request) -> str:
        name = request.match_info["model"]
        if self.models and name not in self.models:
            known = ", ".join(self.models)
            raise web.HTTPNotFound(
                text=json.dumps({"error": f"model {name!r} is not served here; served: {known}"}),
                content_type="application/json",
            )
        return name


def _inference_request(body: bytes) -> dict[str, Any]:
    """The parsed body; raises 400 naming the field that is wrong."""
    try:
        payload = json.loads(body)
    except ValueError as error:
        raise _bad(f"body is not JSON: {error}") from error
    inputs = payload.get("inputs") if isinstance(payload, dict) else None
    if not isinstance(inputs, list) or not inputs:
        raise _bad("inputs: a list of at least one tensor is needed")
    for index, tensor in enumerate(inputs):
        if not isinstance(tensor, dict):
            raise _bad(f"inputs[{index}]: an object is needed")
        missing = [key for key in ("name", "shape", "datatype", "data") if key not in tensor]
        if missing:
            raise _bad(f"inputs[{index}]: {', '.join(missing)} missing")
    return dict(payload)


def _bad(message: str) -> web.HTTPBadRequest:
    return web.HTTPBadRequest(text=json.dumps({"error": message}), content_type="application/json")


def _error(status: int, message: str, headers: dict[str, str]) -> web.Response:
    return web.json_response({"error": message}, status=status, headers=headers)


def metrics_app(registry: CollectorRegistry) -> web.Application:
    """GET /metrics."""
    app = web.Application()
    app.router.add_get("/metrics", make_aiohttp_handler(registry))
    return app
