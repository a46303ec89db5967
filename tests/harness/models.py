"""Models that can be told from the shipped ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx

from rlscaler_core.decision.manifest import Manifest


def write_model(folder: Path, stack_size: int = 4) -> None:
    """A network that asks for no change: all logits are 0 but those of 0, 0 and balanced."""
    width = 10 * stack_size
    logits = np.zeros(13, np.float32)
    logits[[2, 7, 11]] = 5.0
    tensors = [
        onnx.numpy_helper.from_array(np.zeros((width, 13), np.float32), "weight"),
        onnx.numpy_helper.from_array(logits, "bias"),
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gemm", ["observation", "weight", "bias"], ["logits"])],
        "no change",
        [value("observation", onnx.TensorProto.FLOAT, ["N", width])],
        [value("logits", onnx.TensorProto.FLOAT, ["N", 13])],
        tensors,
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    content = model.SerializeToString()
    manifest = Manifest(name="still", stack_size=stack_size, digest=hashlib.sha256(content).hexdigest())
    (folder / "ppo.json").write_text(manifest.model_dump_json())
    (folder / "ppo.onnx").write_bytes(content)
