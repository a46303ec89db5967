"""The network that scores nodes: equivariant layers, so that any number of nodes in any order may come; and its ONNX.

A layer adds functions of one node, of the maximum over all nodes and of their mean (DeepSets, Zaheer et al. 2017).
Nodes in another order give the same values in that order. The rule of the scoring policy, the first column, is added
with a weight that is learned: an untrained network ranks nodes as the rule does.
"""

from __future__ import annotations

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from rlscaler_core.placement.actor import INPUT, OUTPUT

OPSET, IR = 18, 9


class Equivariant(nn.Module):
    """(B, N, a) to (B, N, b)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.one = nn.Linear(inputs, outputs)
        self.highest = nn.Linear(inputs, outputs, bias=False)
        self.mean = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.highest(x.amax(-2, keepdim=True)) + self.mean(x.mean(-2, keepdim=True))
        out: Tensor = self.one(x) + pooled
        return out


class DeepSets(nn.Module):
    """Values (B, N) of nodes (B, N, columns): of the state and, as `dueling` has it, of each node above it."""

    def __init__(self, columns: int, hidden: int = 32, dueling: bool = True, by_rule: float = 1.0) -> None:
        super().__init__()
        self.first, self.second = Equivariant(columns, hidden), Equivariant(hidden, hidden)
        self.advantage = nn.Linear(hidden, 1)
        self.state = nn.Linear(hidden, 1) if dueling else None
        self.by_rule = nn.Parameter(torch.tensor(float(by_rule)))
        nn.init.zeros_(self.advantage.weight)
        nn.init.zeros_(self.advantage.bias)

    def body(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))))

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        above: Tensor = self.advantage(h)[..., 0] + self.by_rule * x[..., 0]
        if self.state is None:
            return above
        value: Tensor = self.state(h.mean(-2))
        return value + above - above.mean(-1, keepdim=True)


def to_onnx(net: DeepSets) -> bytes:
    """The graph from `nodes` (1, N, columns) to `values` (1, N); the state's value is left out."""
    constants = {"highest_axis": np.array([1], np.int64), "zero": np.array([2], np.int64)}
    nodes, name = [], INPUT
    for index, layer in enumerate((net.first, net.second)):
        at = f"{index}_"
        for part in ("one", "highest", "mean"):
            constants[at + part] = getattr(layer, part).weight.detach().numpy().T.copy()
        constants[at + "bias"] = layer.one.bias.detach().numpy()
        nodes += [
            helper.make_node("MatMul", [name, at + "one"], [at + "a"]),
            helper.make_node("ReduceMax", [name, "highest_axis"], [at + "max"], keepdims=1),
            helper.make_node("MatMul", [at + "max", at + "highest"], [at + "b"]),
            helper.make_node("ReduceMean", [name, "highest_axis"], [at + "avg"], keepdims=1),
            helper.make_node("MatMul", [at + "avg", at + "mean"], [at + "c"]),
            helper.make_node("Add", [at + "b", at + "c"], [at + "pooled"]),
            helper.make_node("Add", [at + "pooled", at + "bias"], [at + "shift"]),
            helper.make_node("Add", [at + "a", at + "shift"], [at + "sum"]),
            helper.make_node("Relu", [at + "sum"], [at + "out"]),
        ]
        name = at + "out"
    columns = net.first.one.in_features
    by_rule = np.zeros((columns, 1), np.float32)
    by_rule[0] = float(net.by_rule.detach())
    constants |= {"advantage": net.advantage.weight.detach().numpy().T.copy(), "by_rule": by_rule}
    nodes += [
        helper.make_node("MatMul", [name, "advantage"], ["above"]),
        helper.make_node("MatMul", [INPUT, "by_rule"], ["rule"]),
        helper.make_node("Add", ["above", "rule"], ["both"]),
        helper.make_node("Squeeze", ["both", "zero"], [OUTPUT]),
    ]
    graph = helper.make_graph(
        nodes,
        "placement",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [1, "nodes", columns])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [1, "nodes"])],
        [numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())
