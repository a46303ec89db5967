"""One token service by its policy: load tests of its server, and a recorded load beside KEDA and WVA."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from rlscaler_core.api import offline
from rlscaler_core.decision.types import GPU, Float, Params
from rlscaler_core.decision.units import SIGNALS, UNITS
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.models import Loaded
from rlscaler_rl.evaluation.tokens.compare import played, row_of, tuned
from rlscaler_rl.evaluation.tokens.contenders import ENTRIES, Entry, network
from rlscaler_rl.evaluation.tokens.recorded import half_of, read_requests
from rlscaler_rl.evaluation.tokens.result import Comparison
from rlscaler_rl.results.document import Progress
from rlscaler_rl.simulation.scenario import HOURS_PER_MONTH, ScenarioError
from rlscaler_rl.simulation.tokens.demand import Probe, Weights, needs, weights_of
from rlscaler_rl.simulation.tokens.drawn import World, load_tests
from rlscaler_rl.simulation.tokens.episode import Demand
from rlscaler_rl.simulation.tokens.servers import KINDS, SERVERS, Kind, Server
from rlscaler_rl.simulation.tokens.services import Requests, Services, drawn_requests
from rlscaler_rl.workloads.recording import read_load

LONGEST_SECONDS = 6 * 3600
"""The end of a longer history is played."""

RIVALS = ("waiting", "in_flight", "kv", "backlog", "wva")


def server_of(text: str) -> Server:
    """Return the preset of that name, or the server of a file that `rlscaler tokens calibrate` wrote.

    Raises EvaluationError naming the file, the field and the remedy.
    """
    if text in SERVERS:
        return SERVERS[text]
    remedy = f"name {', '.join(SERVERS)}, or a calibration.json of `rlscaler tokens calibrate`"
    try:
        server = TypeAdapter(Server).validate_python(json.loads(Path(text).read_text(encoding="utf-8"))["server"])
        # Raises ScenarioError for constants that contradict one another.
        Services.of([server])
        return server
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(["server", *map(str, first["loc"])])
        raise EvaluationError(f"--server {text}: {field}: {first['msg']}; {remedy}") from error
    except ScenarioError as error:
        raise EvaluationError(f"--server {text}: {error}; {remedy}") from error
    except OSError as error:
        raise EvaluationError(f"--server {text}: neither a preset nor a file that can be read; {remedy}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise EvaluationError(f"--server {text}: no JSON with a field server; {remedy}") from error


def mix_of(text: str) -> list[float]:
    """Return shares of KINDS by text such as `chat=0.7,code=0.3`. Raises EvaluationError that names the remedy."""
    shares = dict.fromkeys(KINDS, 0.0)
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            share = float(value or 1)
        except ValueError:
            share = np.nan
        if name.strip() not in shares or not 0 < share < np.inf:
            raise EvaluationError(
                f"mix {text!r}: {part.strip()!r} is no kind of requests with a share above 0; kinds are "
                f"{', '.join(KINDS)}, as in chat=0.7,code=0.3"
            )
        shares[name.strip()] += share
    total = sum(shares.values())
    return [share / total for share in shares.values()]


def weighed(
    server: Server, first: float, token: float, share: Sequence[float], kinds: Sequence[Kind] = tuple(KINDS.values())
) -> tuple[Weights, tuple[Probe, ...]]:
    """Return the weights of a service's tokens with the load tests that they are by, as in `load_tests`.

    Raises EvaluationError for an objective that the server cannot keep.
    """
    with _refusals_of(server):
        tests = load_tests(server, share, first, token, kinds)
        return weights_of(tests), tests


@contextmanager
def _refusals_of(server: Server) -> Iterator[None]:
    """Raise EvaluationError that names the server in place of ScenarioError."""
    try:
        yield
    except ScenarioError as error:
        raise EvaluationError(f"{server.label}: {error}") from error


class Load(NamedTuple):
    """Load of one service."""

    requests: Requests
    seconds: int
    weights: Weights
    usual: Probe
    label: str

    def between(self, begin: int, end: int) -> Load:
        """Return the load from one second to another."""
        _, arrived, prompt, answer, cached, need = self.requests
        rows = (arrived >= begin) & (arrived < end)
        first = np.array([0, rows.sum()], np.int64)
        requests = Requests(first, arrived[rows] - begin, prompt[rows], answer[rows], cached[rows], need[rows])
        return self._replace(requests=requests, seconds=end - begin)


def of_rates(history: Path, mix: str, server: Server, first: float, token: float) -> Load:
    """Return a load of drawn requests of a mix, by a recording of requests/s."""
    rate = read_load(history).per_second()[-LONGEST_SECONDS:].astype(np.float64)
    seconds, share = len(rate) // 5 * 5, mix_of(mix)
    weights, tests = weighed(server, first, token, share)
    with _refusals_of(server):
        need = needs(share, tests[0], tests[1:])
    requests = drawn_requests([rate[:seconds]], [np.tile(share, (seconds, 1))], [0], [need])
    return Load(requests, seconds, weights, tests[0], history.name)


def of_requests(trace: Path, server: Server, first: float, token: float) -> Load:
    """Return a load of recorded requests, by their own moments and lengths."""
    recorded = read_requests(trace).last(LONGEST_SECONDS)
    kinds = recorded.kinds()
    weights, tests = weighed(server, first, token, [1.0] * len(kinds), kinds)
    seconds = (int(recorded.arrived[-1]) // 5 + 1) * 5
    return Load(recorded.requests(weights), seconds, weights, tests[0], trace.name)


def simulated(
    path: Path,
    load: Callable[[Server, float, float], Load],
    server: Server,
    tell: Progress,
    trials: int = 0,
    model: Loaded | None = None,
) -> Comparison:
    """Play a policy of a token service by its own objectives on a load, beside KEDA and WVA.

    :param load: returns the load of a server with objectives of the first token and of each further one, in seconds.
    :param trials: settings that are tried for each of them on the earlier half of the load, so that all are played on
        the later one; 0: as guides set them up, on all of it.
    :param model: a network that acts for the policy; None: the forecast rule.

    Raises EvaluationError naming the file, the field and the remedy.
    """
    try:
        policy = offline.read_object(path)[1]
        params = offline.about(policy).params
    except ValueError as error:
        raise EvaluationError(str(error)) from error
    _check(params, path)
    _check_model(model, params, path)
    first = float(params.slo_ms[0]) / 1000
    token = (policy.spec.slo.time_per_output_token_milliseconds or np.inf) / 1000
    tell("load tests")
    whole = load(server, first, token)
    weights, usual = whole.weights, whole.usual
    past, later = whole, whole
    if trials:
        half = half_of(whole.label, whole.seconds)
        past, later = whole.between(0, half), whole.between(half, 2 * half)
    chosen = policy.spec.capacity.token_weights
    row = np.ones(1)
    demand = Demand(
        prompt_weight=row * chosen.prompt,
        answer_weight=row * chosen.answer,
        capacity=row * weights.capacity,
        per_second=row * usual.per_second,
        tokens=np.array([[usual.prompt, usual.answer]]),
    )

    def world(part: Load) -> World:
        begins = float((part.requests.arrived < 60).sum()) / 60
        services = _service(params, server, first, token, begins / usual.per_second)
        return World((server.label,), services, part.requests, demand, demand, part.seconds)

    own = replace(ENTRIES[0] if model is None else network(model), learns=bool(params.learns_capacity[0]))
    entries: list[Entry] = [own, *(entry for entry in ENTRIES if entry.tunable.name in RIVALS)]
    judged, results = world(later), []
    with _refusals_of(server):
        for entry in entries:
            tell(entry.tunable.label)
            rival = trials and entry is not own
            point = tuned(entry, world(past), trials) if rival else entry.tunable.default
            mine = params if entry is own else None
            results.append((entry, point, played(entry, [point], judged, mine)))
    rows = [row_of(*each, results[0][2], judged.seconds) for each in results]
    names = [f"policy {policy.metadata.name}", *([] if model is None else [own.tunable.label])]
    rows[0] = rows[0].model_copy(update={"label": ", ".join(names)})
    price = float(params.cost_per_hour[0, GPU])
    return Comparison(
        services=1,
        servers=[server.label],
        load=whole.label,
        seconds=judged.seconds,
        trials=trials,
        seed=0,
        rows=[row.model_copy(update={"cost_per_month": HOURS_PER_MONTH * row.replicas * price}) for row in rows],
    )


def _check(params: Params, path: Path) -> None:
    unit = UNITS[params.unit[0]]
    if unit != "tokens":
        raise EvaluationError(
            f"{path}: capacity.unit is {unit}; set it to tokens, or play the policy with `rlscaler simulate`"
        )
    signal = SIGNALS[params.slo_signal[0]]
    if signal != "ttft":
        # Requests are judged by the first token and the further ones, and the policy has to see the same.
        raise EvaluationError(
            f"{path}: slo.signal is {signal}; set it to ttft, with the objective of the first token in "
            "slo.latencyMilliseconds and that of each further one in slo.timePerOutputTokenMilliseconds"
        )
    if not params.present[0, GPU] or params.present[0].all():
        raise EvaluationError(f"{path}: targets: the token level plays one pool; keep targets.gpu alone")
    if params.min_replicas[0, GPU] < 1:
        raise EvaluationError(f"{path}: targets.gpu.minReplicas is 0; the token level needs at least 1")


def _check_model(model: Loaded | None, params: Params, path: Path) -> None:
    """Raise EvaluationError for a policy outside the envelope of a network, where the rule would act for it."""
    if model is not None and (outside := model.actor.manifest.outside(params)[1][0]):
        raise EvaluationError(
            f"{path}: the network of --model was not trained for this: {outside}; change the policy, or leave --model "
            "out, and the forecast rule acts"
        )


def _service(params: Params, server: Server, first: float, token: float, need: Float | float) -> Services:
    low, high = int(params.min_replicas[0, GPU]), int(params.max_replicas[0, GPU])
    cold = float(params.cold_start_seconds[0, GPU])
    return Services.of(
        [server],
        first_seconds=first,
        token_seconds=token,
        patience=max(30.0, 4 * first),
        cold_start_low=0.85 * cold,
        cold_start_high=1.15 * cold,
        initial=int(np.clip(np.ceil(1.2 * need), low, high)),
        min_replicas=low,
        max_replicas=high,
    )
