"""Models that can be told from the shipped ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx

from rlscaler_core.decision.manifest import Manifest
from tests.harness import hostile_models


def write_model(folder: Path, stack_size: int = 4) -> None:
    """A network that asks for no change: all logits are 0 but those of 0, 0 and balanced."""
    width = 10 * stack_size
    logits = np.zeros(13, np.float32)
    logits[[2, 7, 11]] = 5.0
    arrays = {"weight": np.zeros((width, 13), np.float32), "bias": logits}
    model = hostile_models.model(
        [onnx.helper.make_node("Gemm", ["observation", *arrays], ["logits"])], arrays, width=width
    )
    content = model.SerializeToString()
    manifest = Manifest(name="still", stack_size=stack_size, digest=hashlib.sha256(content).hexdigest())
    (folder / "ppo.json").write_text(manifest.model_dump_json())
    (folder / "ppo.onnx").write_bytes(content)
