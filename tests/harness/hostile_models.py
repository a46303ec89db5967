"""ONNX graphs that a stranger may publish: endless, enormous, nosy, wrong, and some that are merely unusual."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from onnx import (
    AttributeProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    StringStringEntryProto,
    TensorProto,
    helper,
    numpy_helper,
)

from rlscaler_core.decision.manifest import Manifest

WIDTH = 40
"""Width of the observation that these graphs take: 10 signals, the last 4 intervals."""

Arrays = dict[str, np.ndarray]


def floats(*shape: int, value: float = 0.0) -> np.ndarray:
    return np.full(shape, value, np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def model(nodes: Sequence[NodeProto], arrays: Arrays, opset: int = 17, width: int = WIDTH) -> ModelProto:
    """Make `observation` (N, `width`) -> `logits` (N, 13) of nodes and constants."""
    graph = helper.make_graph(
        list(nodes),
        "hostile",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["N", width])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 13])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


node = helper.make_node
LAST = node("MatMul", ["observation", "w"], ["z"])
"""Logits without what the graph does besides, which is added to them."""


def beside(nodes: Sequence[NodeProto], arrays: Arrays, opset: int = 17) -> ModelProto:
    """Add the number `extra` that the nodes make to logits of 0."""
    return model([LAST, *nodes, node("Add", ["z", "extra"], ["logits"])], {"w": floats(WIDTH, 13)} | arrays, opset)


def plain() -> ModelProto:
    """Make one layer, as harmless as can be."""
    return beside([node("Identity", ["zero"], ["extra"])], {"zero": floats(13)})


def loop(trips: int = 10**9) -> ModelProto:
    """Go round as often as it likes where an observation is not 0; an observation of zeros passes at once."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Identity", ["going"], ["goes_on"]), node("Mul", ["x_in", "one"], ["x_out"])],
        "body",
        [info("i", TensorProto.INT64, []), info("going", TensorProto.BOOL, []), info("x_in", TensorProto.FLOAT, None)],
        [info("goes_on", TensorProto.BOOL, []), info("x_out", TensorProto.FLOAT, None)],
    )
    nodes = [
        node("Abs", ["observation"], ["a"]),
        node("ReduceMax", ["a"], ["most"], keepdims=0),
        node("Sign", ["most"], ["sign"]),
        node("Mul", ["sign", "trips"], ["count"]),
        node("Cast", ["count"], ["trip_count"], to=TensorProto.INT64),
        node("Loop", ["trip_count", "true", "observation"], ["y"], body=body),
        node("MatMul", ["y", "w"], ["logits"]),
    ]
    arrays = {"w": floats(WIDTH, 13), "one": np.float32(1), "trips": np.float32(trips), "true": np.array(True)}
    return model(nodes, {name: np.asarray(array) for name, array in arrays.items()})


def branch() -> ModelProto:
    """Choose between two subgraphs."""
    info = helper.make_tensor_value_info
    then, other = (
        helper.make_graph(
            [helper.make_node("Constant", [], [name], value=numpy_helper.from_array(floats(13), name))],
            name,
            [],
            [info(name, TensorProto.FLOAT, [13])],
        )
        for name in ("then", "other")
    )
    return beside([node("If", ["true"], ["extra"], then_branch=then, else_branch=other)], {"true": np.array(True)})


def scan() -> ModelProto:
    """Fold the rows of the observation with a subgraph."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Add", ["state", "x"], ["next"]), node("Identity", ["next"], ["seen"])],
        "body",
        [info("state", TensorProto.FLOAT, [WIDTH]), info("x", TensorProto.FLOAT, [WIDTH])],
        [info("next", TensorProto.FLOAT, [WIDTH]), info("seen", TensorProto.FLOAT, [WIDTH])],
    )
    nodes = [
        node("Scan", ["start", "observation"], ["end", "all"], body=body, num_scan_inputs=1),
        node("MatMul", ["all", "w"], ["logits"]),
    ]
    return model(nodes, {"w": floats(WIDTH, 13), "start": floats(WIDTH)})


def hidden_subgraph() -> ModelProto:
    """Give a harmless operator an attribute that is a graph."""
    built = plain()
    attribute = built.graph.node[1].attribute.add(name="body", type=AttributeProto.GRAPH)
    attribute.g.CopyFrom(loop().graph)
    return built


def fill(numbers: int = 128 * 2**20) -> ModelProto:
    """Make a tensor of half a GiB out of a shape of one number."""
    value = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.0])
    nodes = [
        node("ConstantOfShape", ["shape"], ["big"], value=value),
        node("ReduceMean", ["big"], ["extra"], keepdims=0),
    ]
    return beside(nodes, {"shape": ints(numbers)})


def expand(numbers: int = 128 * 2**20) -> ModelProto:
    """Repeat one number half a GiB long."""
    nodes = [node("Expand", ["one", "shape"], ["big"]), node("ReduceMean", ["big"], ["extra"], keepdims=0)]
    return beside(nodes, {"one": floats(1), "shape": ints(numbers)})


def tile() -> ModelProto:
    """Repeat the observation a million times."""
    nodes = [node("Tile", ["observation", "times"], ["big"]), node("ReduceMean", ["big"], ["extra"], keepdims=0)]
    return beside(nodes, {"times": ints(1_000_000, 1)})


def doubling(times: int = 24) -> ModelProto:
    """Join a tensor with itself again and again: 24 nodes, and 16 million times the observation."""
    nodes = [
        node("Concat", [name] * 2, [f"x{number + 1}"], axis=1)
        for number, name in enumerate(["observation", *(f"x{n}" for n in range(1, times))])
    ]
    return beside([*nodes, node("ReduceMean", [f"x{times}"], ["extra"], keepdims=0)], {})


def outer() -> ModelProto:
    """Multiply every number with every other, twice over: allowed operators, and 40^4 numbers for each row."""
    nodes = [
        node("Reshape", ["observation", "column"], ["a"]),
        node("Reshape", ["observation", "row"], ["b"]),
        node("MatMul", ["a", "b"], ["square"]),
        node("Reshape", ["square", "long_column"], ["c"]),
        node("Reshape", ["square", "long_row"], ["d"]),
        node("Mul", ["c", "d"], ["big"]),
        node("ReduceMean", ["big"], ["extra"], keepdims=0),
    ]
    shapes = {"column": (-1, 40, 1), "row": (-1, 1, 40), "long_column": (-1, 1600, 1), "long_row": (-1, 1, 1600)}
    return beside(nodes, {name: ints(*shape) for name, shape in shapes.items()})


def shape_of_values() -> ModelProto:
    """Take a shape from the values of the observation: small for zeros, enormous for others."""
    nodes = [
        node("ReduceMax", ["observation"], ["most"], keepdims=0),
        node("Mul", ["most", "scale"], ["scaled"]),
        node("Cast", ["scaled"], ["size"], to=TensorProto.INT64),
        node("Reshape", ["size", "one"], ["shape"]),
        node("Expand", ["number", "shape"], ["big"]),
        node("ReduceMean", ["big"], ["extra"], keepdims=0),
    ]
    return beside(nodes, {"scale": np.asarray(np.float32(1e8)), "one": ints(1), "number": floats(1)})


def external_data(path: Path) -> ModelProto:
    """Read its weights from a file of the operator's machine."""
    built = plain()
    tensor = built.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=str(path))
    return built


def many_nodes(number: int = 100_000) -> ModelProto:
    """Make a chain of 100,000 nodes."""
    nodes = [node("Relu", ["z" if i == 0 else f"r{i}"], [f"r{i + 1}"]) for i in range(number)]
    return model([LAST, *nodes, node("Identity", [f"r{number}"], ["logits"])], {"w": floats(WIDTH, 13)})


def many_numbers() -> ModelProto:
    """Say of a constant that it has 10^12 numbers."""
    built = plain()
    built.graph.initializer[0].dims[:] = [10**6, 10**6]
    return built


def negative_dimension() -> ModelProto:
    """Name a constant of a negative and of an enormous dimension."""
    built = plain()
    built.graph.initializer[0].dims[:] = [-1, 2**62]
    return built


def function() -> ModelProto:
    """Define an operator of its own."""
    built = plain()
    imports = [helper.make_opsetid("", 17)]
    built.functions.append(
        helper.make_function("own", "F", ["x"], ["y"], [node("Identity", ["x"], ["y"])], opset_imports=imports)
    )
    return built


def custom_domain() -> ModelProto:
    """Use ONNX Runtime's own operators."""
    built = plain()
    built.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    built.graph.node[1].domain = "com.microsoft"
    return built


def sparse() -> ModelProto:
    """Carry a sparse constant, which grows when it is loaded."""
    built = plain()
    values = numpy_helper.from_array(floats(1), "sparse")
    indices = numpy_helper.from_array(ints(0), "indices")
    tensor = SparseTensorProto(values=values, indices=indices, dims=[2**31])
    built.graph.sparse_initializer.append(tensor)
    return built


def twice_defined() -> ModelProto:
    """Make one name twice."""
    return beside([node("Identity", ["zero"], ["extra"])] * 2, {"zero": floats(13)})


def used_before_made() -> ModelProto:
    """Use a name before the node that makes it, which would hide where a shape comes from."""
    built = shape_of_values()
    nodes = list(built.graph.node)
    del built.graph.node[:]
    built.graph.node.extend([nodes[0], *reversed(nodes[1:-1]), nodes[-1]])
    return built


def not_a_number() -> ModelProto:
    """Give NaN for every observation but zeros."""
    nodes = [
        node("Mul", ["z", "zero"], ["o"]),
        node("ReduceMax", ["observation"], ["most"], keepdims=1, axes=[1]),
        node("Neg", ["most"], ["less"]),
        node("Abs", ["most"], ["size"]),
        node("Neg", ["size"], ["negative"]),
        node("Sqrt", ["negative"], ["root"]),
        node("Add", ["o", "root"], ["logits"]),
    ]
    return model([LAST, *nodes], {"w": floats(WIDTH, 13), "zero": floats(13)})


def one_row_for_all() -> ModelProto:
    """Say that it gives a row for each observation, and give one for all of them."""
    nodes = [LAST, node("ReduceMean", ["z"], ["logits"], axes=[0], keepdims=1)]
    return model(nodes, {"w": floats(WIDTH, 13)})


def mixed_rows() -> ModelProto:
    """Let one policy's row depend on the other policies' rows."""
    nodes = [
        node("MatMul", ["observation", "w"], ["z"]),
        node("ReduceMean", ["z"], ["all"], axes=[0], keepdims=1),
        node("Sub", ["z", "all"], ["logits"]),
    ]
    return model(nodes, {"w": np.random.default_rng(1).standard_normal((WIDTH, 13)).astype(np.float32)})


def wrong_width() -> ModelProto:
    """Give 12 logits."""
    built = model([node("MatMul", ["observation", "w"], ["logits"])], {"w": floats(WIDTH, 12)})
    built.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 12
    return built


def slow() -> ModelProto:
    """Multiply matrices, all of it allowed, for seconds; small enough for a ConfigMap."""
    nodes = [node("MatMul", ["observation", "first"], ["h0"])]
    nodes += [node("MatMul", [f"h{i}", "square"], [f"h{i + 1}"]) for i in range(480)]
    nodes.append(node("MatMul", ["h480", "last"], ["logits"]))
    return model(nodes, {"first": floats(WIDTH, 440), "square": floats(440, 440), "last": floats(440, 13)})


def unknown_metadata() -> ModelProto:
    """Ask ONNX Runtime for a session of its own making."""
    built = plain()
    built.metadata_props.append(StringStringEntryProto(key="ort_config", value='{"session_options": {}}'))
    return built


def mlp(width: int = 256) -> ModelProto:
    """Make a network of three layers with a normalization and another activation each."""
    rng = np.random.default_rng(2)
    nodes, value, arrays = [], "observation", {}
    for index, kind in enumerate(("Relu", "Gelu", "LeakyRelu")):
        wide = WIDTH if index == 0 else width
        arrays[f"w{index}"] = (rng.standard_normal((wide, width)) / wide).astype(np.float32)
        arrays[f"s{index}"], arrays[f"b{index}"] = floats(width, value=1), floats(width)
        nodes += [
            node("MatMul", [value, f"w{index}"], [f"m{index}"]),
            node("LayerNormalization", [f"m{index}", f"s{index}", f"b{index}"], [f"n{index}"]),
            node(kind, [f"n{index}"], [f"a{index}"]),
        ]
        value = f"a{index}"
    arrays["last"] = (rng.standard_normal((width, 13)) / width).astype(np.float32)
    return model([*nodes, node("MatMul", [value, "last"], ["logits"])], arrays, opset=20)


def recurrent(hidden: int = 64) -> ModelProto:
    """Make an LSTM over the four intervals of an observation, with the start state that exporters make."""
    rng = np.random.default_rng(3)
    nodes = [
        node("Reshape", ["observation", "steps"], ["sequence"]),
        node("Transpose", ["sequence"], ["x"], perm=[1, 0, 2]),
        node("Shape", ["observation"], ["shape"]),
        node("Gather", ["shape", "first"], ["rows"], axis=0),
        node("Concat", ["one", "rows", "hidden"], ["state_shape"], axis=0),
        node("Expand", ["zero", "state_shape"], ["h0"]),
        node("LSTM", ["x", "W", "R", "B", "", "h0", "h0"], ["", "h"], hidden_size=hidden),
        node("Squeeze", ["h", "axis"], ["last"]),
        node("Gemm", ["last", "w", "b"], ["logits"]),
    ]
    arrays = {
        "steps": ints(-1, 4, 10),
        "first": ints(0),
        "one": ints(1),
        "hidden": ints(hidden),
        "axis": ints(0),
        "zero": floats(1, 1, 1),
        "W": rng.standard_normal((1, 4 * hidden, 10)).astype(np.float32) / 10,
        "R": rng.standard_normal((1, 4 * hidden, hidden)).astype(np.float32) / 10,
        "B": floats(1, 8 * hidden),
        "w": rng.standard_normal((hidden, 13)).astype(np.float32) / 10,
        "b": floats(13),
    }
    return model(nodes, {name: array.astype(array.dtype, copy=False) for name, array in arrays.items()})


HARMLESS: dict[str, Callable[[], ModelProto]] = {"plain": plain, "mlp": mlp, "recurrent": recurrent}
"""What has to be taken."""


def manifest(content: bytes, name: str = "hostile", **fields: object) -> Manifest:
    """Make the manifest that belongs to a graph."""
    digest = hashlib.sha256(content).hexdigest()
    return Manifest.model_validate({"name": name, "stack_size": 4, "digest": digest} | fields)
