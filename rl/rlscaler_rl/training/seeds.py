"""The same training with several seeds side by side, and one network that answers as their mean does."""

from __future__ import annotations

import json
import os
import secrets
import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from rlscaler_rl.training import checkpoint
from rlscaler_rl.training.config import ConfigError, TrainingConfig
from rlscaler_rl.training.distributed import LOCAL, WORKERS, map_runs, session
from rlscaler_rl.training.errors import TrainingError
from rlscaler_rl.training.files import write_atomically

FIGURES = ("j", "cost", "late_percent")
BEST = ("best_model.zip", "policy.onnx", "manifest.json", "config.json", "training_progress.json")
TOKEN = ".shared"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SeedTask:
    """One seed, as it is sent to a worker."""

    config: str
    folder: str
    token: str
    """In a file of the folder above: a worker that reads it there shares the disk with the sender of the task."""
    keeper: Any = None
    """Store for the files of a run so far, for workers that share no disk; None where all do."""


@dataclass(slots=True)
class SeedResult:
    """Result of training one seed; `error` instead of figures where it failed."""

    seed: int
    steps: int = 0
    seconds: float = 0.0
    device: str = ""
    j: float = float("nan")
    cost: float = float("nan")
    late_percent: float = float("nan")
    error: str = ""


class Keeper:
    """The files of every unfinished run, in the memory of the cluster's head; `begun` are those it goes on from."""

    def __init__(self, begun: dict[str, dict[str, bytes]]) -> None:
        self._begun = begun
        self._sent: dict[str, dict[str, bytes]] = {}

    def put(self, folder: str, files: dict[str, bytes]) -> None:
        self._sent[folder] = files

    def get(self, folder: str) -> dict[str, bytes]:
        return self._sent.get(folder) or self._begun.get(folder, {})

    def sent(self, folder: str) -> dict[str, bytes]:
        return self._sent.get(folder, {})


def train_seeds(
    config: TrainingConfig,
    seeds: Sequence[int],
    folder: Path,
    address: str | None = None,
    *,
    workers: int = WORKERS,
    resume: bool = False,
    say: Callable[[str], None] = print,
) -> list[SeedResult]:
    """Train into folder/seed_N, write seeds.json, and make one network of the seeds in folder/distilled and the folder.

    A seed that fails is reported and does not stop the others. Raises ConfigError for a training that cannot be begun
    or resumed, TrainingError where every seed failed.
    """
    folder = folder.resolve()
    begun = any(checkpoint.found(folder / f"seed_{seed}") for seed in seeds)
    if resume and not begun:
        raise ConfigError(f"{folder}: no seed_*/ with a checkpoint to resume from; begin without --resume")
    if not resume and begun:
        raise ConfigError(f"{folder}: trainings are in it; go on with --resume or choose another folder with --out")
    token = secrets.token_hex(8)
    for seed in seeds:
        (folder / f"seed_{seed}").mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "config.json", config.model_dump_json(indent=1) + "\n")
    write_atomically(folder / TOKEN, token)
    try:
        with session(address, workers=workers) as ray:
            results = _run(ray, config, seeds, folder, address, token, say)
    finally:
        (folder / TOKEN).unlink(missing_ok=True)
    _finish(folder, config, results, say)
    return results


def _run(
    ray: Any,
    config: TrainingConfig,
    seeds: Sequence[int],
    folder: Path,
    address: str | None,
    token: str,
    say: Callable[[str], None],
) -> list[SeedResult]:
    folders = [str(folder / f"seed_{seed}") for seed in seeds]
    keeper = None if address in (None, LOCAL) else _keeper(ray, {name: pack(Path(name)) for name in folders})
    tasks = [SeedTask(_seeded(config, seed), name, token, keeper) for seed, name in zip(seeds, folders, strict=True)]
    results: list[SeedResult] = []
    try:
        for task, (result, files) in zip(tasks, map_runs(train_seed, tasks, address), strict=True):
            _unpack(Path(task.folder), files)
            results.append(result)
            say(_line(result))
    except KeyboardInterrupt:
        if keeper is not None:
            for task in tasks[len(results) :]:
                _unpack(Path(task.folder), ray.get(keeper.sent.remote(task.folder)))
        raise
    return results


def _keeper(ray: Any, begun: dict[str, dict[str, bytes]]) -> Any:
    return ray.remote(num_cpus=0, resources={"node:__internal_head__": 0.001})(Keeper).remote(begun)


def _seeded(config: TrainingConfig, seed: int) -> str:
    # Seeds share the cores, and the result of a seed must not depend on how many run beside it.
    agent = config.agent.model_copy(update={"seed": seed, "torch_threads": 1})
    return config.model_copy(update={"agent": agent}).model_dump_json()


def train_seed(task: SeedTask) -> tuple[SeedResult, dict[str, bytes]]:
    """Train one seed, on from its checkpoint where there is one; the files are empty where the disk is shared."""
    config, shared = TrainingConfig.model_validate_json(task.config), Path(task.folder)
    token = shared.parent / TOKEN
    if task.keeper is None or (token.is_file() and token.read_text() == task.token):
        return _train(config, shared, lambda: False), {}
    import ray

    with tempfile.TemporaryDirectory(prefix="rlscaler-seed-") as scratch:
        folder, store = Path(scratch), _Kept(task)
        _unpack(folder, ray.get(task.keeper.get.remote(task.folder)))
        result = _train(config, folder, lambda: store.up_to_date(folder))
        return result, pack(folder)


class _Kept:
    """Sends the folder to the keeper whenever it has a new checkpoint."""

    def __init__(self, task: SeedTask) -> None:
        self.task, self.sent = task, b""

    def up_to_date(self, folder: Path) -> bool:
        """Always false: asked after every update, as a run asks whether to stop."""
        import ray

        newest = "".join(f"{path.name} {path.stat().st_mtime_ns}" for path in checkpoint.found(folder)[:1]).encode()
        if newest != self.sent:
            ray.get(self.task.keeper.put.remote(self.task.folder, pack(folder)))
            self.sent = newest
        return False


def _train(config: TrainingConfig, folder: Path, stop: Callable[[], bool]) -> SeedResult:
    from rlscaler_rl.training.train import train
    from rlscaler_rl.training.validation import best_of

    result, label = SeedResult(config.agent.seed), f"seed {config.agent.seed}: "
    resume = bool(checkpoint.found(folder))
    try:
        train(config, folder, resume=resume, stop=stop, say=lambda text: print(label + text, flush=True), label=label)
    except (ConfigError, TrainingError) as error:
        result.error = str(error)
        return result
    rows = json.loads((folder / "training_progress.json").read_text(encoding="utf-8"))
    best = best_of(rows)
    result.steps, result.seconds, result.device = rows[-1]["steps"], rows[-1]["seconds"], rows[-1]["device"]
    for name in FIGURES:
        setattr(result, name, best["validation"]["mean"][name])
    return result


def pack(folder: Path) -> dict[str, bytes]:
    """Return the files of a run by name, without the older checkpoints and TensorBoard's files."""
    newest = {path.name for path in checkpoint.found(folder)[:1]}
    passed_over = ("model_episode_", "resume_episode_", ".")
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.is_file() and (path.name in newest or not path.name.startswith(passed_over))
    }


def _unpack(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        write_atomically(folder / Path(name).name, content)


def _finish(folder: Path, config: TrainingConfig, results: list[SeedResult], say: Callable[[str], None]) -> None:
    rows = [asdict(result) for result in results]
    good = [result for result in results if not result.error]
    if not good:
        raise TrainingError(f"{folder}: every seed failed; the first: {results[0].error}")
    body = {"seeds": rows, "mean": _over(good, statistics.fmean), "std": _over(good, _std)}
    best = min(good, key=lambda result: result.j).seed
    chosen = f"seed_{best}"
    if len(good) > 1:
        from rlscaler_rl.training.distil import DISTILLED, distil

        say(f"one network of {len(good)} seeds")
        body[DISTILLED] = _with_one_thread(distil, folder, config, [result.seed for result in good], best)
        # Validation does not choose between it and the best seed: its intervals are wider than their difference.
        chosen = DISTILLED
    write_atomically(folder / "seeds.json", json.dumps(body | {"best": best}, indent=1) + "\n")
    for file in BEST:
        write_atomically(folder / file, (folder / chosen / file).read_bytes())


def _with_one_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Return the result of a function in a process whose numerical libraries have one thread, as those of seeds."""
    # Sums depend on the number of threads, and the libraries read it when they are loaded.
    before = dict(os.environ)
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            return pool.submit(function, *arguments).result()
    finally:
        for name in THREADS:
            del os.environ[name]
        os.environ.update(before)


def _over(results: list[SeedResult], function: Callable[[Iterable[float]], float]) -> dict[str, float]:
    return {name: function([getattr(result, name) for result in results]) for name in FIGURES}


def _std(values: Iterable[float]) -> float:
    """Standard deviation of the population that the seeds are drawn from; NaN for a single one."""
    several = list(values)
    return statistics.stdev(several) if len(several) > 1 else float("nan")


def _line(result: SeedResult) -> str:
    if result.error:
        return f"seed {result.seed}: failed: {result.error}"
    return f"seed {result.seed}: best J {result.j:.3f} after {result.seconds / 60:.1f} min on {result.device}"


def table(results: list[SeedResult]) -> str:
    """Seeds with the figures of their best validation, and mean and standard deviation over them."""
    good = [result for result in results if not result.error]
    rows = [(str(result.seed), *(getattr(result, name) for name in FIGURES)) for result in good]
    rows += [(name, *_over(good, function).values()) for name, function in (("mean", statistics.fmean), ("std", _std))]
    lines = [f"{name:>5}  {j:8.3f}  {cost:8.3f}  {late:8.2f} %" for name, j, cost, late in rows]
    failed = [_line(result) for result in results if result.error]
    return "\n".join([f"{'seed':>5}  {'J':>8}  {'cost':>8}  {'late':>8}", *lines, *failed])
