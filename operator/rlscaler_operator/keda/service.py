"""The gRPC service that KEDA calls."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, NoReturn

import grpc
from google.protobuf.message_factory import GetMessageClass

from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.keda import external_scaler_pb2 as pb
from rlscaler_operator.keda.recommendation import (
    NoSuchPolicyError,
    NothingKnownError,
    TriggerTarget,
    recommended,
    target_of,
)
from rlscaler_operator.keda.tls import CLIENT_CA, server_credentials
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.registry import Registry

log = logging.getLogger("rlscaler.externalscaler")

_PROTOCOL = pb.DESCRIPTOR.services_by_name["ExternalScaler"]
SERVICE = _PROTOCOL.full_name

METHODS = {
    method.name: (method.server_streaming, GetMessageClass(method.input_type), GetMessageClass(method.output_type))
    for method in _PROTOCOL.methods
}
"""Methods of the protocol: whether the answer is a stream, and the classes of request and answer."""

TARGET = 1
"""Target of the metric's average per replica: the HPA divides by it, so it wants as many replicas as recommended."""

STREAM_SECONDS = 1.0
"""Interval at which an open stream checks whether the pool became active or inactive."""

STOP_SECONDS = 1.0

STREAM_SHARE = 0.75
"""Largest share of the calls for open streams: the other calls are answered at once and always find room."""

LIMITS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_allowed_incoming_connections", 256),
    ("grpc.max_receive_message_length", 64 * 2**10),
    ("grpc.max_metadata_size", 8 * 2**10),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 300_000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)
"""Options of the server. KEDA's operator and its metrics server hold one connection each; a request has some 200 bytes.
Idle connections are closed, and so are connections whose client no longer answers."""

Context = Any
"""grpc.aio.ServicerContext; grpc comes without types."""


class ExternalScaler:
    """Service that answers with the recommended replicas of policies. Unknown is an error, never 0."""

    def __init__(self, registry: Registry, status_interval_seconds: float, max_streams: int) -> None:
        self._registry, self._status_interval_seconds = registry, status_interval_seconds
        self._free_streams = max_streams

    async def IsActive(self, request: pb.ScaledObjectRef, context: Context) -> pb.IsActiveResponse:  # noqa: N802
        """Answer False only where 0 replicas are recommended, for a pool whose minReplicas is 0."""
        return pb.IsActiveResponse(result=await self._replicas(request, context) > 0)

    async def StreamIsActive(  # noqa: N802
        self, request: pb.ScaledObjectRef, context: Context
    ) -> AsyncIterator[pb.IsActiveResponse]:
        """Answer at once and at every known change, for triggers of the type external-push."""
        if not self._free_streams:
            text = "too many streams are open: raise external_scaler_max_calls, or use triggers of the type external"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self._free_streams -= 1
        try:
            async for active in self._changes(request, context):
                yield pb.IsActiveResponse(result=active)
        finally:
            self._free_streams += 1

    async def _changes(self, request: pb.ScaledObjectRef, context: Context) -> AsyncIterator[bool]:
        answer: bool | None = None
        while True:
            try:
                active: bool | None = self._look(request) > 0
            except NoSuchPolicyError as error:
                await _refuse(context, error)
            except NothingKnownError:
                active = answer  # the last answer stays valid
            if active is not None and active != answer:
                answer = active
                yield active
            await asyncio.sleep(STREAM_SECONDS)

    async def GetMetricSpec(  # noqa: N802
        self, request: pb.ScaledObjectRef, context: Context
    ) -> pb.GetMetricSpecResponse:
        """Answer with one metric: the recommended replicas."""
        try:
            name = metric_name(target_of(request.namespace, request.scalerMetadata))
        except NoSuchPolicyError as error:
            await _refuse(context, error)
        return pb.GetMetricSpecResponse(
            metricSpecs=[pb.MetricSpec(metricName=name, targetSize=TARGET, targetSizeFloat=TARGET)]
        )

    async def GetMetrics(self, request: pb.GetMetricsRequest, context: Context) -> pb.GetMetricsResponse:  # noqa: N802
        """Answer with the recommended replicas."""
        replicas = await self._replicas(request.scaledObjectRef, context)
        value = pb.MetricValue(metricName=request.metricName, metricValue=replicas, metricValueFloat=replicas)
        return pb.GetMetricsResponse(metricValues=[value])

    async def _replicas(self, request: pb.ScaledObjectRef, context: Context) -> int:
        try:
            return self._look(request)
        except (NoSuchPolicyError, NothingKnownError) as error:
            await _refuse(context, error)

    def _look(self, request: pb.ScaledObjectRef) -> int:
        target = target_of(request.namespace, request.scalerMetadata)
        return recommended(self._registry, target, time.time(), self._status_interval_seconds)

    def handler(self) -> Any:
        """Return the handler for a gRPC server: each method of the protocol is the method of the same name here."""
        handlers = {}
        for name, (streams, request, answer) in METHODS.items():
            make = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
            handlers[name] = make(getattr(self, name), request.FromString, answer.SerializeToString)
        return grpc.method_handlers_generic_handler(SERVICE, handlers)


def metric_name(target: TriggerTarget) -> str:
    return f"rlscaler-{target.policy}-{target.pool}"


async def _refuse(context: Context, error: Exception) -> NoReturn:
    code = grpc.StatusCode.UNAVAILABLE if isinstance(error, NothingKnownError) else grpc.StatusCode.NOT_FOUND
    await context.abort(code, str(error))
    raise AssertionError("abort raises")


def _check_clients(settings: Settings) -> None:
    """Raise OperatorError where clients of other machines would be answered without a certificate."""
    folder = settings.external_scaler_tls_dir
    authenticated = folder is not None and (folder / CLIENT_CA).exists()
    if authenticated or settings.external_scaler_anonymous or _is_loopback(settings.external_scaler_host):
        return
    raise OperatorError(
        f"the external scaler at {settings.external_scaler_host} would answer every client: put tls.crt, tls.key and "
        f"{CLIENT_CA}, the authority of its clients' certificates, into a folder and name it with "
        "--external-scaler-tls-dir, or let all clients ask with --external-scaler-anonymous"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def serve(settings: Settings, registry: Registry, stack: AsyncExitStack) -> int:
    """Start the service and return its port; `stack` stops it.

    Raises OperatorError where it cannot listen, and where clients of other machines would need no certificate.
    """
    _check_clients(settings)
    most = settings.external_scaler_max_calls
    server: Any = grpc.aio.server(options=LIMITS, maximum_concurrent_rpcs=most)
    scaler = ExternalScaler(registry, settings.status_interval_seconds, int(STREAM_SHARE * most))
    server.add_generic_rpc_handlers((scaler.handler(),))
    host = settings.external_scaler_host
    address = f"[{host}]:{settings.external_scaler_port}" if ":" in host else f"{host}:{settings.external_scaler_port}"
    try:
        if settings.external_scaler_tls_dir is None:
            port: int = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, server_credentials(settings.external_scaler_tls_dir))
    except RuntimeError as error:
        raise OperatorError(f"cannot listen on {address}: {error}; choose another --external-scaler-port") from error
    await server.start()
    stack.push_async_callback(server.stop, STOP_SECONDS)
    log.info("external scaler for KEDA on %s:%d", settings.external_scaler_host, port)
    return port
