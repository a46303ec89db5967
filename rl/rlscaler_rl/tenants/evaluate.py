"""Trained agents beside the rules that share a pool, on loads of which nothing was trained or chosen on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.arbiter.learned import INPUTS, OUTPUT, Learned
from rlscaler_core.decision.actor import one_thread_session
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.graph import checked
from rlscaler_core.decision.types import Float32
from rlscaler_rl.tenants.compare import ARRANGEMENTS, Arrangement, Table, compare
from rlscaler_rl.tenants.draw import Request
from rlscaler_rl.tenants.environment import AS_THE_RULE, SLOTS, TENANT_WIDTH, Setting, TenantsEnv
from rlscaler_rl.tenants.play import Played
from rlscaler_rl.tenants.references import by_network, hindsight
from rlscaler_rl.tenants.signals import NONE_LOST, Loss

PROGRESS = "training_progress.json"


class Agents:
    """The actors of a training's folder: ONNX on one thread, one for each slot of a tenant, and the arbiter's."""

    def __init__(self, folder: Path) -> None:
        """Raises ModelError for a folder that `tenants train` did not leave."""
        self.arbiter = Learned.load(folder)
        try:
            self.options: dict[str, Any] = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))["options"]
            contents = [(folder / f"{slot}.onnx").read_bytes() for slot in SLOTS[:2]]
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(f"{folder}: {error}; name a folder that `tenants train` left") from error
        self._sessions = [
            one_thread_session(checked(content, slot), slot) for slot, content in zip(SLOTS, contents, strict=False)
        ]

    def act(self, env: TenantsEnv) -> NDArray[np.int64]:
        """The most likely actions (P, M, 3) for what the agents see now."""
        acts, actions = self.options["acts"], np.full((*env.shape, len(SLOTS)), AS_THE_RULE, np.int64)
        for slot, session in enumerate(self._sessions):
            if acts[slot]:
                logits = _run(session, env.seen[:, :, slot, :TENANT_WIDTH].reshape(-1, 1, TENANT_WIDTH))
                actions[:, :, slot] = logits.argmax(-1).reshape(env.shape)
        return actions

    def play(self, request: Request, loss: Loss | None = None) -> Played:
        """Play the pools of a request; the arbiter shares as it does live."""
        setting = Setting(request, loss or NONE_LOST, "agent" if self.options["budget"] else None)
        env = TenantsEnv(setting)
        env.reset()
        share = by_network(self.arbiter)
        done = False
        while not done:
            sharing = share(env.pools, env.samples) if self.options["budget"] and self.options["acts"][2] else None
            _, _, done = env.step(self.act(env), sharing)
        return env.figures()


def _run(session: Any, members: Float32) -> Float32:
    mask = np.ones((*members.shape[:2], 1), np.float32)
    found: Float32 = session.run([OUTPUT], dict(zip(INPUTS, (members, mask), strict=True)))[0]
    return found


def arrangements(agents: Agents, loss: Loss | None = None) -> tuple[Arrangement, ...]:
    """Every way to share that agents are compared with, and the agents themselves."""
    rule = ARRANGEMENTS[1].make
    own = (
        Arrangement("learned", "learned arbiter, forecast rule", rule, by_network(agents.arbiter)),
        Arrangement("agents", "all agents", rule, agents=lambda request: agents.play(request, loss)),
        Arrangement("hindsight", "(load to come known, forecast rule)", rule, hindsight),
    )
    return (*ARRANGEMENTS[:-1], *own, ARRANGEMENTS[-1])


def evaluate(agents: Agents, request: Request, say: Callable[[str], None], loss: Loss | None = None) -> Table:
    """Play agents and all they are compared with on the same pools.

    Raises WorkloadError for a load that is not there.
    """
    return compare(replace(request, cpu=True), say, arrangements(agents, loss), loss)
