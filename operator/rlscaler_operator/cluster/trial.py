"""Trial of a foreign network before the operator loads it, in a process that may die of it.

The process has little memory and processor time, and is killed when it takes too long. It loads the network as the
operator would, measures the largest batch that the operator decides at once, and reports faults.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.exceptions import ContractMismatchError, ModelError
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.types import OBSERVATIONS, Float32

ROWS = 250
"""Rows of the measured batch: as many as the operator decides at once (`loop.tick.AT_ONCE`)."""

MOST_MILLISECONDS = 50.0
"""Longest time of the fastest of RUNS runs of such a batch. The bundled network takes 1."""

RUNS = 3

MEMORY_BYTES = 128 * 2**20
"""Memory for loading and running, beyond that of Python and ONNX Runtime: 16 times the largest graph."""

CPU_SECONDS = 4
"""Processor time of the process, one or two seconds of which are its start."""

WALL_SECONDS = 12.0
"""Longest time of the process, on a machine that is busy otherwise."""

_one_at_a_time = threading.Lock()
"""Lock of trials: the operator's container has memory for one at a time."""


def try_out(manifest: Manifest, graph: bytes, source: str) -> None:
    """Load and run a graph in a process of its own. Raises ModelError, ContractMismatchError; both name `source`."""
    request = {"manifest": manifest.model_dump_json(), "graph": base64.b64encode(graph).decode()}
    with _one_at_a_time:
        try:
            done = subprocess.run(
                [sys.executable, "-m", __name__],
                input=json.dumps(request).encode(),
                capture_output=True,
                timeout=WALL_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ModelError(
                f"{source}: trying the network out took longer than {WALL_SECONDS:g} s; {SMALLER}"
            ) from None
    if done.returncode < 0:
        raise ModelError(f"{source}: {_ended(-done.returncode)}; {SMALLER}")
    try:
        trouble = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ModelError(f"{source}: trying the network out failed: {''.join(last) or 'no answer'}") from None
    if trouble:
        kind = ContractMismatchError if trouble["mismatch"] else ModelError
        raise kind(f"{source}: {trouble['message']}")


SMALLER = "publish a smaller network"
NO_MEMORY = "Failed to allocate memory"
"""Part of ONNX Runtime's message where memory is refused."""


def _ended(number: int) -> str:
    """Return the meaning of the signal that ended the process."""
    from signal import SIGKILL, SIGXCPU, Signals

    if number in (SIGXCPU, SIGKILL):
        return f"trying the network out took more than {CPU_SECONDS} s of processor time, or the machine's memory"
    return f"trying the network out ended with {Signals(number).name}"


def main() -> None:
    """Answer the request on standard input with a JSON object: empty, or the fault."""
    request = json.load(sys.stdin)
    with _own_output() as answer:
        _bound()
        json.dump(_trouble(request), answer)


@contextlib.contextmanager
def _own_output() -> Iterator[Any]:
    """Yield standard output for the answer alone; ONNX Runtime prints to standard error."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer:
        os.dup2(2, 1)
        yield answer


def _bound() -> None:
    """Limit memory and processor time of this process. Only Linux counts the memory that a process may write to."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    used = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY_BYTES,) * 2)
    # Where the container's memory ends, the kernel should end this process and not the operator.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _trouble(request: dict[str, Any]) -> dict[str, Any]:
    try:
        actor = Actor.load(base64.b64decode(request["graph"]), Manifest.parse(request["manifest"]))
        _measure(actor)
    except (ModelError, MemoryError) as error:
        if isinstance(error, MemoryError) or NO_MEMORY in str(error):
            return {"message": f"the network takes more than {MEMORY_BYTES // 2**20} MiB; {SMALLER}", "mismatch": False}
        return {"message": str(error), "mismatch": isinstance(error, ContractMismatchError)}
    return {}


def _measure(actor: Actor) -> None:
    """Raise ModelError where a batch takes too long, gives NaN, or a row depends on the other rows."""
    observations = _observations(actor.manifest)
    probabilities, seconds = actor.probabilities(observations), []
    for _ in range(RUNS):
        began = time.perf_counter()
        actor.probabilities(observations)
        seconds.append(time.perf_counter() - began)
    if 1000 * min(seconds) > MOST_MILLISECONDS:
        raise ModelError(
            f"{ROWS} decisions take the network {1000 * min(seconds):.0f} ms, more than the "
            f"{MOST_MILLISECONDS:g} ms that are allowed; {SMALLER}"
        )
    if not np.isfinite(probabilities).all():
        raise ModelError("the network gives NaN for observations within their range; train it again")
    few = observations[:: ROWS // 5]
    alone = np.concatenate([actor.probabilities(few[i : i + 1]) for i in range(len(few))])
    if not np.allclose(alone, probabilities[:: ROWS // 5], atol=1e-3):
        raise ModelError("the network decides otherwise for a row in a batch than for the same row alone")


def _observations(manifest: Manifest) -> Float32:
    """Return observations over their whole range, and rows of zeros, of both bounds and of the smallest number."""
    width, clip = len(OBSERVATIONS) * manifest.stack_size, manifest.normalisation.clip
    rows = np.random.default_rng(0).uniform(-clip, clip, (ROWS, width)).astype(np.float32)
    rows[0], rows[1], rows[2], rows[3] = 0, clip, -clip, np.finfo(np.float32).smallest_subnormal
    return rows


if __name__ == "__main__":
    main()
