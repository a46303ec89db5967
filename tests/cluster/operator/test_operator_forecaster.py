"""What the forecaster learned of a load outlives the operator: it is in the policy's status."""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.forecaster.learn import learn
from rlscaler_core.decision.forecaster.memory import calendar_of, nothing_learned
from rlscaler_core.decision.forecaster.storage import from_text, to_text
from rlscaler_core.decision.tables import make_params

MONDAY = 1_767_571_200.0


def jumping_load() -> str:
    """A memory of a day on which the load tripled at the begin of every half hour."""
    params, draw = make_params(1), np.random.default_rng(5)
    recent, calendar = nothing_learned(1)
    for time in np.arange(MONDAY, MONDAY + 86_400, 15.0):
        rate = draw.poisson(10 * (60 if time % 1800 < 60 else 20)) / 10
        recent, calendar = learn(params, recent, calendar, np.array([time]), np.array([rate]), np.ones(1, np.bool_))
    return to_text(recent[0], calendar[0])


def jumps(text: str | None) -> float:
    """Jumps that a status' memory has counted; 0 without one."""
    return 0.0 if text is None else float(calendar_of(from_text(text)[1]).jumps[0])


def test_what_was_learned_of_a_load_outlives_operators_and_damage_is_named(start, world, wait):
    learned = jumping_load()
    for name in ("keen", "torn"):
        world.service(name, rate=20)
        world.deployments(name)
        world.policy(name)
    for name, text in (("keen", learned), ("torn", learned[:-200])):
        path = f"{world.path('rlscalingpolicies')}/{name}/status"
        patch = {"status": {"forecaster": text}}
        world.kube.merge(path, patch)

    def kept(name: str) -> str | None:
        return world.get("rlscalingpolicies", name).get("status", {}).get("forecaster")

    first = start()
    wait(lambda: kept("keen") not in (None, learned))
    assert jumps(kept("keen")) > 0.9 * jumps(learned) > 10
    wait(lambda: "/torn: forecaster state: " in first.log.read_text())
    wait(lambda: kept("torn") not in (None, learned[:-200]))
    assert jumps(kept("torn")) == 0
    first.kill()
    before = kept("keen")
    second = start()
    wait(lambda: kept("keen") != before)
    assert jumps(kept("keen")) > 0.9 * jumps(learned)
    assert second.stop() == 0
