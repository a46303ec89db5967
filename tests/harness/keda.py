"""Client of KEDA's external scaler protocol, as KEDA itself has one."""

from __future__ import annotations

from typing import Any

from rlscaler_operator.keda.service import METHODS, SERVICE


def client(channel: Any) -> Any:
    """Return an object with a method for each one of the protocol, on a synchronous or asynchronous channel."""
    calls = {}
    for name, (streams, request, answer) in METHODS.items():
        call = channel.unary_stream if streams else channel.unary_unary
        calls[name] = call(
            f"/{SERVICE}/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )
    return type("Client", (), {name: staticmethod(call) for name, call in calls.items()})
