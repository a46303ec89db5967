"""Shadow's model beside simulated token services: whether a day of such windows would count as evidence.

The forecast rule plays drawn services; Shadow sees vLLM's histograms and gauges of each window of ten minutes.

    python -m benchmarks.shadow_tokens --services 12 --hours 12 --seed 32
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import click
import numpy as np
from numpy.typing import NDArray

from rlscaler_core.api.promotion import MeasuredDay
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.belief import believed
from rlscaler_core.decision.types import GPU
from rlscaler_operator.sensing.subject import TOKEN_SIGNALS
from rlscaler_operator.shadow.calibration import Histograms, histogram_of, histograms
from rlscaler_operator.shadow.comparison import Comparison
from rlscaler_operator.shadow.evidence import WINDOW_SECONDS, agrees
from rlscaler_operator.shadow.service_times import ServiceTimes, service_times
from rlscaler_operator.shadow.simulation import ShadowSimulation, advance_meters, new_simulation
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry
from rlscaler_rl.evaluation.tokens.contenders import ENTRIES
from rlscaler_rl.simulation.tokens.drawn import World, drawn
from rlscaler_rl.simulation.tokens.episode import Policies, params_of
from rlscaler_rl.simulation.tokens.level import TokenLevel
from rlscaler_rl.simulation.tokens.looks import LOOK_SECONDS, Counters, Looks, counters
from rlscaler_rl.simulation.tokens.looks import WINDOW_SECONDS as RATE_SECONDS
from rlscaler_rl.simulation.tokens.state import FIRST_BUCKETS, TOKEN_BUCKETS

LEARNING_HOURS = 3.0
"""Hours in which the model learns its service, before a day is counted."""

Float = NDArray[np.float64]


class Held(NamedTuple):
    """Calibration of Shadow's model of one service after `LEARNING_HOURS`."""

    server: str
    measured: MeasuredDay
    late: float
    """Late requests, %; by the histogram no less than this."""
    modelled: float
    counts: bool
    """A day of such windows counts."""


def held_against(world: World, declared: Float | float = 1.0) -> list[Held]:
    """Play services under the rule, and hold Shadow's model against each.

    :param declared: factor, (N,) or one, on the capacities that policies declare.
    """
    demand = world.declared.take(np.arange(len(world.services)))
    demand.capacity = demand.capacity * declared
    level = TokenLevel(world.services, world.requests)
    looks = Looks(level, np.stack([demand.prompt_weight, demand.answer_weight], axis=1))
    params, rule = params_of(world.services, demand, "tokens", True), ENTRIES[0].tunable
    actor = cast(ActorLike, rule.controllers([rule.default], np.zeros((1, 1)), len(params)))
    policies = Policies(looks, params, actor, "tokens")
    comparisons = [Comparison(policy_of(world, n), "basis", False, 1, today="2026-03-02") for n in range(len(params))]
    simulation: ShadowSimulation | None = None
    share = np.tile([1.0, 0.0], (len(params), 1))
    gauges: list[Counters] = []
    begin = 0.0
    for second in np.arange(0.0, world.seconds, LOOK_SECONDS):
        looks.look()
        desired, samples = policies(second)[:, GPU], policies.samples
        level.scale(np.clip(desired, world.services.min_replicas, world.services.max_replicas))
        if simulation is None:
            rows = [np.array([n]) for n in range(len(params))]
            simulation = ShadowSimulation.concat([new_simulation(params.take(n), samples.take(n), 1) for n in rows])
        simulation.params = believed(params, policies.state)
        times = ServiceTimes(*map(np.stack, zip(*(each.times for each in comparisons), strict=True)))
        capacity_factor = np.array([each.capacity_factor for each in comparisons])
        everywhere = np.ones(len(params), bool)
        simulation, _ = advance_meters(
            simulation, samples, share, RATE_SECONDS, everywhere, looks.value("requests"), times, capacity_factor
        )
        gauges.append(counters(level, None))
        level.advance(LOOK_SECONDS)
        if level.time - begin >= WINDOW_SECONDS:
            for n, comparison in enumerate(comparisons):
                if begin < 3600 * LEARNING_HOURS <= level.time:
                    comparison.measured = None
                window = _series(level, n, gauges, begin)
                subject, slo = comparison.policy.subject, comparison.policy.spec.slo.latency_milliseconds
                work = service_times(window, subject, WINDOW_SECONDS)
                meter = simulation.real.take(slice(n, n + 1))
                comparison.calibrate(meter, histogram_of(window, subject), float(slo), work)
            gauges, begin = [], level.time
    return [_held(name, comparison) for name, comparison in zip(world.servers, comparisons, strict=True)]


def policy_of(world: World, n: int) -> Policy:
    """Return the policy of a drawn service."""
    services = world.services
    slo = {
        "latencyMilliseconds": round(1000 * float(services.first_seconds[n])),
        "signal": "ttft",
        "timePerOutputTokenMilliseconds": round(1000 * float(services.token_seconds[n])),
    }
    target = {"deployment": f"s{n}", "maxReplicas": int(services.max_replicas[n]), "costPerHour": 1.0}
    spec = {"targets": {"gpu": target}, "capacity": {"unit": "tokens"}, "slo": slo, "metrics": {"preset": "vllm"}}
    metadata = {"name": f"s{n}", "namespace": "ns", "uid": f"uid-{n}", "generation": 1}
    return Registry().put({"metadata": metadata, "spec": spec})


def _series(level: TokenLevel, n: int, gauges: list[Counters], begin: float) -> Histograms:
    """Return the answer of Prometheus to Shadow's query for one service, from `begin` to now."""
    before, now = gauges[0], counters(level, None)
    a, b = level.requests.first[n : n + 2]
    fleet = level.fleet
    began, first, token = fleet.began[a:b], fleet.first[a:b], fleet.token[a:b]
    ended = began + np.nan_to_num(token) * (level.requests.answer[a:b] - 1)
    here = np.isfinite(first) & (began > begin) & (began <= level.time)
    done = np.isfinite(token) & (ended > begin) & (ended <= level.time)
    series: list[dict[str, Any]] = []

    def add(value: float, name: str, **labels: str) -> None:
        metric = {"_p": name, "namespace": "ns", "deployment": f"s{n}", **labels}
        series.append({"metric": metric, "value": [0, str(value)]})

    seen = (
        (before.first[n], now.first[n], FIRST_BUCKETS, first[here]),
        (
            before.token[n],
            now.token[n],
            TOKEN_BUCKETS,
            token[done],
        ),
    )
    for signal, (old, new, bounds, values) in zip(TOKEN_SIGNALS, seen, strict=True):
        for bound, count in zip([*bounds.tolist(), np.inf], np.cumsum(new - old), strict=True):
            add(float(count), f"vllm {signal}", le=str(bound))
        add(float(values.sum()), f"vllm {signal} spent")
    add(float(now.attempts[n] - before.attempts[n]), "vllm")
    add(float(np.mean([each.running[n] for each in gauges])), "vllm running")
    add(float(np.mean([each.waiting[n] for each in gauges])), "vllm waiting")
    return histograms(series)


def _held(server: str, comparison: Comparison) -> Held:
    day = comparison.measured
    assert day is not None, "no window was compared"
    shares = 100 * day.late / day.requests, 100 * day.modelled_late / day.modelled_requests
    return Held(server, day, *shares, agrees(day))


@click.command()
@click.option("--services", type=click.IntRange(1, 200), default=12, show_default=True)
@click.option("--hours", type=click.FloatRange(LEARNING_HOURS, 72, min_open=True), default=12.0, show_default=True)
@click.option("--seed", type=click.IntRange(0, 900), default=32, show_default=True)
@click.option("--declared", default=1.0, show_default=True, help="Factor on the declared capacities.")
def main(services: int, hours: float, seed: int, declared: float) -> None:
    """Print of each service whether a day of such windows would count as evidence."""
    services_held = held_against(drawn(services, round(3600 * hours), seed), declared)
    click.echo("server      windows  agree  late %  modelled %  counts")
    for each in services_held:
        day = each.measured
        share = 100 * day.agreeing / day.windows
        click.echo(
            f"{each.server:10s} {day.windows:8.0f} {share:5.0f}% {each.late:7.1f} {each.modelled:11.1f}  {each.counts}"
        )
    click.echo(f"{sum(each.counts for each in services_held)} of {len(services_held)} services")


if __name__ == "__main__":
    main()
