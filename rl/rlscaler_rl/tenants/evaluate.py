"""Trained agents beside the rules that share a pool, on loads that were used neither to train nor to choose agents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.arbiter.learned import INPUTS, OUTPUT, Bids, Learned
from rlscaler_core.decision.actor import one_thread_session
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.graph import checked
from rlscaler_core.decision.types import Float32
from rlscaler_rl.results.document import Progress
from rlscaler_rl.tenants.compare import ARRANGEMENTS, Arrangement, Comparison, compare
from rlscaler_rl.tenants.draw import Request
from rlscaler_rl.tenants.environment import AS_THE_RULE, SLOTS, TENANT_WIDTH, Setting, TenantsEnv
from rlscaler_rl.tenants.play import Played, by_network, hindsight
from rlscaler_rl.tenants.signals import NONE_LOST, Loss

PROGRESS = "training_progress.json"


class Agents:
    """Actors of a training folder: an ONNX session of one thread for each slot of a tenant, and the arbiter."""

    def __init__(self, folder: Path) -> None:
        """Raises ModelError for a folder that `tenants train` did not leave."""
        self.arbiter = Learned.load(folder)
        try:
            progress = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
            self.options: dict[str, Any] = progress["options"]
            self.returns: list[float] = progress["returns"]
            """Mean reward of the pools in every epoch of the training."""
            scores = [float(j) for _, j in progress["curve"]]
            self.untrained: bool = min(scores) >= scores[0]
            """Whether no look was better than that before the first epoch, whose policies are then the saved ones."""
            contents = [(folder / f"{slot}.onnx").read_bytes() for slot in SLOTS[:2]]
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(f"{folder}: {error}; name a folder that `tenants train` left") from error
        self._sessions = [
            one_thread_session(checked(content, slot), slot) for slot, content in zip(SLOTS, contents, strict=False)
        ]

    def act(self, seen: Float32) -> NDArray[np.int64]:
        """Return the most likely actions (P, M, 3) of the tenants' agents for observations (P, M, 3, WIDTH)."""
        actions = np.full(seen.shape[:3], AS_THE_RULE, np.int64)
        for slot, session in enumerate(self._sessions):
            if self.options["acts"][slot]:
                logits = _run(session, seen[:, :, slot, :TENANT_WIDTH].reshape(-1, 1, TENANT_WIDTH))
                actions[:, :, slot] = logits.argmax(-1).reshape(seen.shape[:2])
        return actions

    def play(self, request: Request, loss: Loss | None = None) -> Played:
        """Play the pools of a request; the arbiter shares as it does live."""
        return play_together([self], request, loss)[0]


def play_together(several: Sequence[Agents], request: Request, loss: Loss | None = None) -> list[Played]:
    """Play the pools of a request with the agents of several trainings, all with a budget or all without one.

    The order of pods that are created in one tick and the lost information are drawn for all pools at once, so they
    differ between the trainings.
    """
    # Side by side in one batch: a tick of many pools takes little longer than a tick of one.
    budget = several[0].options["budget"]
    env = TenantsEnv(Setting(request, loss or NONE_LOST, "agent" if budget else None))
    env.reset(*[request.seed] * len(several))
    done = False
    while not done:
        seen = np.split(env.seen, len(several))
        actions = np.concatenate([agents.act(part) for agents, part in zip(several, seen, strict=True)])
        _, _, done = env.step(actions, _bids(several, env).order if budget else None)
    columns = [np.split(values, len(several)) for values in astuple(env.figures())]
    return [Played(*parts) for parts in zip(*columns, strict=True)]


def _bids(several: Sequence[Agents], env: TenantsEnv) -> Bids:
    """Return the bids of each training's arbiter in its own part of the pools."""
    pools, signals = env.pools, env.pools.signals(env.samples)
    members, b = pools.members, len(pools.budgets) // len(several)
    m = len(members) // len(several)
    factor = np.ones(len(members))
    for number, agents in enumerate(several):
        if agents.options["acts"][2]:
            mine, ours = slice(number * m, (number + 1) * m), slice(number * b, (number + 1) * b)
            own = members.take(mine)
            own = replace(own, budget=own.budget - number * b)
            factor[mine] = agents.arbiter.bids(
                pools.budgets.take(ours), own, pools.loans.take(mine), signals.take(mine)
            ).factor
    return Bids(factor, np.ones(len(pools.budgets), np.bool_))


def _run(session: Any, members: Float32) -> Float32:
    mask = np.ones((*members.shape[:2], 1), np.float32)
    output: Float32 = session.run([OUTPUT], dict(zip(INPUTS, (members, mask), strict=True)))[0]
    return output


def arrangements(several: Sequence[Agents], loss: Loss | None = None) -> tuple[Arrangement, ...]:
    """Return every way to share a pool, and the agents of each training."""
    trained = [entry for number, agents in enumerate(several) for entry in _trained(number, agents, loss)]
    known = Arrangement("hindsight", "(load to come known, forecast rule)", ARRANGEMENTS[1].make, hindsight)
    return (*ARRANGEMENTS[:-1], *trained, known, ARRANGEMENTS[-1])


def _trained(number: int, agents: Agents, loss: Loss | None) -> Iterator[Arrangement]:
    """Yield a training's arbiter under the forecast rule, and all of its agents where others act too."""
    rule, seed = ARRANGEMENTS[1].make, agents.options["seed"]
    yield Arrangement(
        f"learned_{number}", f"learned arbiter, forecast rule, seed {seed}", rule, by_network(agents.arbiter)
    )
    if any(agents.options["acts"][:2]):
        yield Arrangement(f"agents_{number}", f"all agents, seed {seed}", rule, agents=lambda it: agents.play(it, loss))


def evaluate(several: Sequence[Agents], request: Request, progress: Progress, loss: Loss | None = None) -> Comparison:
    """Play the agents of trainings and their rivals on the same pools.

    Raises WorkloadError for a load that is not there.
    """
    return compare(request, progress, arrangements(several, loss), loss)
