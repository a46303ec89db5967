"""Allow list for ONNX graphs, checked before ONNX Runtime loads one: a graph is an untrusted program.

Only checked parts are handed on: the graph is written anew from the fields that are known here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from google.protobuf.message import DecodeError

from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.onnx_subset_pb2 import Graph, Model, Node, Tensor

MOST_BYTES = 8 * 2**20
"""The largest size of a file."""
MOST_NODES = 500
MOST_NUMBERS = 2 * 2**20
"""The most numbers in all constants of a graph together: 8 MiB of 32 bits each."""

_ACTIVATIONS = """Celu Elu Erf Gelu HardSigmoid HardSwish LeakyRelu LogSoftmax Mish Relu Selu Sigmoid Softmax Softplus
    Softsign Tanh"""
_ARITHMETIC = "Abs Add Clip Div Exp Log Max Min Mul Neg Pow Reciprocal Sign Sqrt Sub"
_LAYERS = "BatchNormalization GRU Gemm LSTM LayerNormalization MatMul RNN"
_SHAPES = """Cast Concat Constant ConstantOfShape Expand Flatten Gather Identity Reshape Shape Slice Split Squeeze
    Transpose Unsqueeze"""
_REDUCTIONS = "ReduceMax ReduceMean ReduceMin ReduceSum"

OPERATORS = frozenset(" ".join((_ACTIVATIONS, _ARITHMETIC, _LAYERS, _SHAPES, _REDUCTIONS)).split())
"""ONNX operators that feed-forward and recurrent networks are exported with. None repeats or chooses a subgraph."""

_SIZES_FROM = dict.fromkeys(("Expand", "Reshape", "Slice", "Split", "Squeeze", "Unsqueeze"), 1) | {"ConstantOfShape": 0}
_SIZES_FROM |= dict.fromkeys(_REDUCTIONS.split(), 1)
"""The first input that says how large the output is, by operator."""

_DOMAINS = ("", "ai.onnx")
_FLOAT, _INT32, _INT64, _BOOL, _DOUBLE = 1, 6, 7, 9, 11
_TYPES = (_FLOAT, _INT32, _INT64, _BOOL, _DOUBLE)
"""Numbers of ONNX's data types that constants may have."""


def checked(content: bytes, source: str) -> bytes:
    """Return the graph with its checked parts alone.

    Raises ModelError that names the disallowed part; `source` is the file or object in messages. Time and memory are
    bounded by those of parsing MOST_BYTES, some 50 times that.
    """
    try:
        if len(content) > MOST_BYTES:
            raise _RefusedError(
                f"{len(content):,} bytes are more than the {MOST_BYTES:,} that a policy network may have"
            )
        model = Model.FromString(content)
        _check_model(model)
        _check_order(model.graph)
    except DecodeError as error:
        raise ModelError(f"{source}: not an ONNX graph ({error}); export the actor again") from error
    except _RefusedError as error:
        raise ModelError(f"{source}: {error}; docs/security.md says what a network may be made of") from error
    _clear_metadata(model)
    return bytes(model.SerializeToString())


class _RefusedError(Exception):
    """Raised for a disallowed part of an ONNX graph."""


def _check_model(model: Model) -> None:
    graph = model.graph
    size = model.ByteSize()
    model.DiscardUnknownFields()
    if model.ByteSize() != size:
        raise _RefusedError("it has parts that are neither nodes nor tensors of numbers")
    for part, entries in (
        ("functions", model.functions),
        ("training information", model.training_info),
        ("sparse constants", graph.sparse_initializer),
    ):
        if entries:
            raise _RefusedError(f"it has {part}")
    for imported in model.opset_import:
        if imported.domain not in _DOMAINS:
            raise _RefusedError(f"it imports operators of {imported.domain!r} beside those of ONNX")
    if len(graph.node) > MOST_NODES:
        raise _RefusedError(f"{len(graph.node):,} nodes are more than the {MOST_NODES} that a policy network may have")
    for node in graph.node:
        _check_node(node)
    if (numbers := sum(map(_numbers, _tensors(graph)))) > MOST_NUMBERS:
        raise _RefusedError(f"its constants are {numbers:,} numbers, more than the {MOST_NUMBERS:,} that are allowed")


def _check_node(node: Node) -> None:
    if node.domain not in _DOMAINS:
        raise _RefusedError(f"operator {node.op_type} of {node.domain!r} is none of ONNX's own")
    if node.op_type not in OPERATORS:
        raise _RefusedError(f"operator {node.op_type} is none that a policy network may use")
    for attribute in node.attribute:
        if attribute.HasField("g") or attribute.graphs:
            raise _RefusedError(f"operator {node.op_type} has a subgraph as its attribute {attribute.name!r}")


def _tensors(graph: Graph) -> Iterator[Tensor]:
    yield from graph.initializer
    for node in graph.node:
        yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))


def _numbers(tensor: Tensor) -> int:
    if tensor.external_data or tensor.data_location:
        raise _RefusedError(f"constant {tensor.name!r} is external data, in another file")
    if tensor.data_type not in _TYPES:
        raise _RefusedError(f"constant {tensor.name!r} is not of numbers (ONNX data type {tensor.data_type})")
    if any(dimension < 0 for dimension in tensor.dims):
        raise _RefusedError(f"constant {tensor.name!r} has a negative dimension")
    return math.prod(tensor.dims)


def _check_order(graph: Graph) -> None:
    """Raise _RefusedError where a name is used before it is made, is made twice, or where values give a size.

    A size that follows from constants and from the number of rows is the same for every observation, so all runs take
    as much memory as the first.
    """
    constants = {tensor.name for tensor in graph.initializer}
    from_values = {value.name for value in graph.input} - constants
    known = {"", *constants, *from_values}
    for node in graph.node:
        for name in node.input:
            if name not in known:
                raise _RefusedError(f"operator {node.op_type} uses {name!r} before a node makes it")
        sizes = node.input[_SIZES_FROM.get(node.op_type, len(node.input)) :]
        if any(name in from_values for name in sizes):
            raise _RefusedError(f"operator {node.op_type} takes a size from values of the observation")
        outputs = [name for name in node.output if name]
        if len({*outputs, *known}) != len(outputs) + len(known):
            raise _RefusedError(f"operator {node.op_type} outputs {', '.join(outputs)}, and a name is defined twice")
        known.update(outputs)
        if node.op_type != "Shape" and any(name in from_values for name in node.input):
            from_values.update(outputs)


def _clear_metadata(model: Model) -> None:
    """Remove the metadata that ONNX Runtime would read as settings."""
    graph = model.graph
    parts: Iterable[Model | Graph | Node | Tensor] = (model, graph, *graph.node, *_tensors(graph))
    for part in (*parts, *graph.input, *graph.output, *graph.value_info):
        part.ClearField("metadata_props")
