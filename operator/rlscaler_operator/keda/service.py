"""The gRPC service that KEDA calls."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, NoReturn

import grpc

from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.keda import external_scaler_pb2 as pb
from rlscaler_operator.keda import external_scaler_pb2_grpc as stubs
from rlscaler_operator.keda.recommendation import (
    NoSuchPolicyError,
    NothingKnownError,
    TriggerTarget,
    recommended,
    target_of,
)
from rlscaler_operator.keda.tls import server_credentials
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.registry import Registry

log = logging.getLogger("rlscaler.externalscaler")

TARGET = 1
"""Target of the metric's average per replica: the HPA then wants as many replicas as the metric says."""

STREAM_SECONDS = 1.0
"""Time between two looks of an open stream whether the pool became active or inactive."""

STOP_SECONDS = 1.0

Context = Any
"""grpc.aio.ServicerContext; grpc comes without types."""


class ExternalScaler(stubs.ExternalScalerServicer):
    """Answers with the replicas that policies recommend. Unknown is an error, never 0."""

    def __init__(self, registry: Registry, status_interval_seconds: float) -> None:
        self._registry, self._status_interval_seconds = registry, status_interval_seconds

    async def IsActive(self, request: pb.ScaledObjectRef, context: Context) -> pb.IsActiveResponse:  # noqa: N802
        """False only where no replicas at all are recommended, for a pool whose minReplicas is 0."""
        return pb.IsActiveResponse(result=await self._replicas(request, context) > 0)

    async def StreamIsActive(  # noqa: N802
        self, request: pb.ScaledObjectRef, context: Context
    ) -> AsyncIterator[pb.IsActiveResponse]:
        """Answer at once and at every change that is known, for triggers of the type external-push."""
        said: bool | None = None
        while True:
            try:
                active: bool | None = self._look(request) > 0
            except NoSuchPolicyError as error:
                await _refuse(context, error)
            except NothingKnownError:
                active = said
            if active is not None and active != said:
                said = active
                yield pb.IsActiveResponse(result=active)
            await asyncio.sleep(STREAM_SECONDS)

    async def GetMetricSpec(  # noqa: N802
        self, request: pb.ScaledObjectRef, context: Context
    ) -> pb.GetMetricSpecResponse:
        """One metric: the recommended replicas."""
        try:
            name = metric_name(target_of(request.namespace, request.scalerMetadata))
        except NoSuchPolicyError as error:
            await _refuse(context, error)
        return pb.GetMetricSpecResponse(
            metricSpecs=[pb.MetricSpec(metricName=name, targetSize=TARGET, targetSizeFloat=TARGET)]
        )

    async def GetMetrics(self, request: pb.GetMetricsRequest, context: Context) -> pb.GetMetricsResponse:  # noqa: N802
        """The recommended replicas."""
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


def metric_name(target: TriggerTarget) -> str:
    return f"rlscaler-{target.policy}-{target.pool}"


async def _refuse(context: Context, error: Exception) -> NoReturn:
    code = grpc.StatusCode.UNAVAILABLE if isinstance(error, NothingKnownError) else grpc.StatusCode.NOT_FOUND
    await context.abort(code, str(error))
    raise AssertionError("abort raises")


async def serve(settings: Settings, registry: Registry, stack: AsyncExitStack) -> int:
    """Start the service; `stack` stops it. Returns the port. Raises OperatorError where it cannot listen."""
    server: Any = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    scaler = ExternalScaler(registry, settings.status_interval_seconds)
    stubs.add_ExternalScalerServicer_to_server(scaler, server)  # type: ignore[no-untyped-call]
    address = f"{settings.external_scaler_host}:{settings.external_scaler_port}"
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
