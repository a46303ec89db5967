"""The trained network: ONNX in, probabilities out. No pickle is ever read."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import onnxruntime

from rlscaler_core.decision.action import LOGITS, head_probabilities
from rlscaler_core.decision.exceptions import ContractMismatchError, ModelError
from rlscaler_core.decision.graph import checked
from rlscaler_core.decision.limit import TimeLimit
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.observation import CONTRACT_VERSION, RETRAIN
from rlscaler_core.decision.types import OBSERVATIONS, Float32

INPUT, OUTPUT = "observation", "logits"


class Actor:
    """An ONNX graph that maps `observation` (N, 10 k) float32 to `logits` (N, 13) float32; it runs on one thread."""

    def __init__(
        self, session: onnxruntime.InferenceSession, manifest: Manifest, limit: TimeLimit | None = None
    ) -> None:
        self.manifest = manifest
        self._session, self._limit = session, limit

    @classmethod
    def load(cls, onnx: str | Path | bytes, manifest: Manifest, limit: TimeLimit | None = None) -> Self:
        """Load an actor from a file or from the content of one; `limit` holds for each of its runs.

        Raises ContractMismatchError where contract or shapes differ, ModelError where the file is missing,
        is not the one the manifest names (sha256), is no graph that `graph.checked` allows, or does not give finite
        logits.
        """
        source = manifest.name if isinstance(onnx, bytes) else str(onnx)
        if manifest.contract_version != CONTRACT_VERSION:
            raise ContractMismatchError(
                f"{source}: contract_version is {manifest.contract_version!r}, not {CONTRACT_VERSION!r}; {RETRAIN}"
            )
        content = _content(onnx)
        digest = hashlib.sha256(content).hexdigest()
        if digest != manifest.digest:
            raise ModelError(
                f"{source}: sha256 is {digest} and the manifest's digest is {manifest.digest or 'empty'}; "
                "the file is damaged or belongs to another manifest, copy both again"
            )
        actor = cls(one_thread_session(checked(content, source), source), manifest, limit)
        actor._check(source)
        return actor

    def probabilities(self, stacked: Float32) -> Float32:
        """Return the probabilities (N, 13), which sum to 1 in each head (5, 5, 3), for observations (N, 10 k).

        Raises ModelError where the runtime fails, returns another number of rows, or takes longer than the limit.
        """
        try:
            if self._limit is None:
                (logits,) = self._session.run([OUTPUT], {INPUT: stacked})
            else:
                (logits,) = self._limit.run(self._session, [OUTPUT], {INPUT: stacked})
        except Exception as error:
            raise ModelError(f"{self.manifest.name}: the network failed: {error}") from error
        if logits.shape != (len(stacked), LOGITS):
            raise ModelError(
                f"{self.manifest.name}: the network gives {logits.shape} for {len(stacked)} rows, "
                f"not ({len(stacked)}, {LOGITS}); export the actor again"
            )
        return head_probabilities(logits)

    def _check(self, source: str) -> None:
        width = len(OBSERVATIONS) * self.manifest.stack_size
        names = [node.name for node in self._session.get_inputs()], [node.name for node in self._session.get_outputs()]
        if names != ([INPUT], [OUTPUT]):
            raise ContractMismatchError(
                f"{source}: the graph has inputs {names[0]} and outputs {names[1]}, not {INPUT!r} and {OUTPUT!r}"
            )
        (shape_in,), (shape_out,) = (
            [node.shape for node in self._session.get_inputs()],
            [node.shape for node in self._session.get_outputs()],
        )
        if shape_in[1:] != [width] or shape_out[1:] != [LOGITS] or isinstance(shape_in[0], int):
            raise ContractMismatchError(
                f"{source}: the graph maps {shape_in} to {shape_out}; with stack_size {self.manifest.stack_size} "
                f"it has to map (N, {width}) to (N, {LOGITS}) for any N"
            )
        if not np.isfinite(self.probabilities(np.zeros((2, width), np.float32))).all():
            raise ModelError(f"{source}: the network gives NaN for an all-zero observation; train it again")


class ActorLike(Protocol):
    """Interface of an actor for `decide`: an `Actor`, the rule, or a control in a comparison."""

    @property
    def manifest(self) -> Manifest: ...

    def probabilities(self, stacked: Float32) -> Float32: ...


def _content(onnx: str | Path | bytes) -> bytes:
    if isinstance(onnx, bytes):
        return onnx
    try:
        return Path(onnx).read_bytes()
    except OSError as error:
        raise ModelError(f"{onnx}: {error.strerror}; name an ONNX file that exists") from error


def one_thread_session(content: bytes, source: str) -> onnxruntime.InferenceSession:
    """Load a checked graph to run on one thread. Raises ModelError that names the source."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.load_model_format", "ONNX")
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelError(f"{source}: not an ONNX graph that this runtime can load: {error}") from error
