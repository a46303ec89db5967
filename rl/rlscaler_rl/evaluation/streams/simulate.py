"""Simulation of one group of consumers with the forecast rule, KEDA and a reference that knows the load."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_core.models import load_bundled
from rlscaler_rl.baselines.hpa import DOWN_SECONDS, LAG_THRESHOLD, KedaKafkaLag
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.models import Loaded
from rlscaler_rl.evaluation.streams.hindsight import hindsight
from rlscaler_rl.evaluation.streams.loads import Load
from rlscaler_rl.evaluation.streams.result import Consumers, Row, Simulation, Spread
from rlscaler_rl.evaluation.streams.search import LATE_PERCENT, KedaSettings, searched
from rlscaler_rl.results.document import Progress
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.streams.episode import (
    INTERVAL_SECONDS,
    SENSE_SECONDS,
    StreamResult,
    least_consumer_seconds,
    params_of,
    run,
)
from rlscaler_rl.simulation.streams.groups import Groups, groups

SHORT_LAGS = "Lags below a second are too short: single messages do not queue in the simulator."
FORESIGHT = "Hindsight plans with every message to come known, for the least J: cost + 0.5 for each % late."


def simulated(load: Load, consumers: Consumers, progress: Progress, network: Loaded | None = None) -> Simulation:
    """Play a group for each row of the load with every contender; all meet equal messages and cold starts.

    A network acts within its envelope, and the rule elsewhere. Raises EvaluationError, with the remedy, for a group
    that cannot be simulated.
    """
    played = _groups(load.rates, 0, consumers)
    progress("KEDA: settings are searched")
    keda = searched(_groups(load.searched, len(played), consumers))
    contenders: list[tuple[str, str, Any]] = [
        ("rule", "forecast rule", load_bundled("rule")),
        ("keda", "KEDA, default", KedaKafkaLag()),
        ("keda_searched", "KEDA, searched", keda.contender()),
    ]
    if network is not None:
        contenders.insert(1, ("network", "network", network.actor))
    rows = []
    for name, label, controller in contenders:
        progress(label)
        rows.append(_row(name, label, run(played, controller).result))
    progress("hindsight")
    rows.append(_row("hindsight", "hindsight", hindsight(played)))
    least = Spread.of(least_consumer_seconds(played))
    return Simulation(
        load=load.name,
        load_seconds=load.rates.shape[1],
        seeds=len(played),
        consumers=consumers,
        rows=[*rows, Row(contender="least", label="least possible", consumer_seconds=least)],
        notes=[SHORT_LAGS, FORESIGHT, *_outside(network, played), *_notes(load, consumers, keda)],
    )


def _groups(rates: Float, first: int, consumers: Consumers) -> Groups:
    """Return groups under `rates` (N, T), of the seeds from `first` on."""
    try:
        return groups(
            rates,
            first + np.arange(len(rates)),
            partitions=consumers.partitions,
            rate=consumers.messages_per_second,
            protocol=consumers.protocol,
            slo_seconds=consumers.objective_seconds,
            initial=consumers.fewest,
            min_replicas=consumers.fewest,
            max_replicas=consumers.most,
        )
    except ScenarioError as error:
        raise EvaluationError(str(error)) from error


def _row(name: str, label: str, result: StreamResult) -> Row:
    same = ("late_percent", "consumer_seconds", "performance_cost", "rebalances_per_hour", "left", "j")
    figures = {figure: Spread.of(getattr(result, figure)) for figure in same}
    return Row(contender=name, label=label, p95_lag_seconds=Spread.of(result.p95_seconds), **figures)


def _outside(network: Loaded | None, played: Groups) -> list[str]:
    if network is None:
        return []
    params = params_of(played, INTERVAL_SECONDS, SENSE_SECONDS)
    reasons = {reason for reason in network.actor.manifest.outside(params)[1] if reason}
    return [f"The network is outside its envelope, so the rule decides: {reason}." for reason in sorted(reasons)]


def _notes(load: Load, consumers: Consumers, keda: KedaSettings) -> list[str]:
    rate = consumers.messages_per_second
    notes = [
        f"KEDA's default is a lagThreshold of {LAG_THRESHOLD}, and {DOWN_SECONDS:g} s until consumers go. Searched on "
        f"other seeds: {keda.lag_threshold} and {keda.down_seconds:g} s, the fewest consumer-seconds with at most "
        f"{LATE_PERCENT:g} % late, or else the fewest late.",
        *load.notes,
    ]
    busy = min(consumers.most, consumers.partitions)
    peak, capacity = float(load.rates.max()), busy * rate
    if peak > capacity:
        notes.append(
            f"the load reaches {peak:,.5g} messages/s, and {busy} consumers that have a partition process "
            f"{capacity:,.5g}: what lies above waits under every autoscaler"
        )
    return notes
