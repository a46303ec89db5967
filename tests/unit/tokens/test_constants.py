"""Constants of a server are found by its load tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlscaler_rl.evaluation.tokens.client import Sent
from rlscaler_rl.evaluation.tokens.constants import fitted, measured, simulated
from rlscaler_rl.simulation.tokens.servers import Server

TRUTH = Server("truth", 12.0, 0.8, 0.3, 0.002, 20_000, 512, 8, "test", 3.0)
FAST = Server("fast", 7.0, 0.005, 0.0022, 7e-5, 400_000, 2048, 256, "test", 15.0)


def _played(truth: Server, mix: tuple[int, int], per_second: float | None, rng: np.random.Generator) -> Sent:
    """Return a load test of 40 requests of a server, whose times are a tenth off by noise."""
    prompt, answer = (np.maximum(np.rint(mean * rng.uniform(0.5, 1.5, 40)), 2).astype(np.int32) for mean in mix)
    at = np.zeros(40) if per_second is None else np.cumsum(rng.exponential(1 / per_second, 40))
    return simulated_test(truth, Sent(at - at[0], prompt, answer, np.full(40, 20.0), np.full(40, 0.1)), rng)


def simulated_test(truth: Server, test: Sent, rng: np.random.Generator) -> Sent:
    """Return the test with the times of a server and noise."""
    from rlscaler_rl.evaluation.tokens import constants as module

    seen: list[Any] = []

    def keep(first: Any, token: Any, seconds: float) -> Any:
        seen.append((first, token))
        return module.Figures(*[1.0] * 5)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_figures", keep)
        simulated(truth, [test])
    first, token = (times * np.exp(0.1 * rng.standard_normal(len(times))) for times in seen[0])
    return test._replace(first=first, token=token)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truth", "rates", "names"),
    [
        (TRUTH, (0.5, 2.0, 4.0, None), ("iteration_ms", "prompt_ms", "sequence_ms")),
        # Most of a first token is outside of iterations, as on a fast GPU.
        (FAST, (20.0, 50.0, 90.0, None), ("iteration_ms", "prompt_ms", "request_ms")),
    ],
)
def test_constants_are_found_again_from_the_load_tests_of_a_known_server(
    truth: Server, rates: tuple[float | None, ...], names: tuple[str, ...]
) -> None:
    rng = np.random.default_rng(0)
    tests = [_played(truth, mix, rate, rng) for mix in ((60, 120), (700, 12)) for rate in rates]
    constants = fitted(truth, tests)
    for name in names:
        assert getattr(constants, name) == pytest.approx(getattr(truth, name), rel=0.15), name
    held_out = _played(truth, (300, 60), None, rng)
    for name, real, model in zip(
        measured(held_out)._fields, measured(held_out), simulated(constants, [held_out])[0], strict=True
    ):
        assert model == pytest.approx(real, rel=0.15), name
