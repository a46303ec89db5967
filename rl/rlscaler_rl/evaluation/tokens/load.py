"""Load of one token service: its server, the mix of its requests, and recorded requests or rates."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from rlscaler_core.decision.types import Bool
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.tokens.recorded import LEAST_REQUESTS, read_requests
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.tokens.demand import Probe, Weights, needs, weights_of
from rlscaler_rl.simulation.tokens.drawn import load_tests
from rlscaler_rl.simulation.tokens.servers import KINDS, SERVERS, Kind, Server
from rlscaler_rl.simulation.tokens.services import Requests, Services, drawn_requests
from rlscaler_rl.workloads.recording import read_load

LONGEST_SECONDS = 6 * 3600
"""The end of a longer history is played."""


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
    with refusals_of(server):
        tests = load_tests(server, share, first, token, kinds)
        return weights_of(tests), tests


@contextmanager
def refusals_of(server: Server) -> Iterator[None]:
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
        here = self.of((self.requests.arrived >= begin) & (self.requests.arrived < end))
        requests = here.requests._replace(arrived=here.requests.arrived - begin)
        return here._replace(requests=requests, seconds=end - begin)

    def of(self, rows: Bool) -> Load:
        """Return the load of some of its requests, a mask (M,)."""
        _, arrived, prompt, answer, cached, need = self.requests
        first = np.array([0, rows.sum()], np.int64)
        requests = Requests(first, arrived[rows], prompt[rows], answer[rows], cached[rows], need[rows])
        return self._replace(requests=requests)


def of_rates(
    history: Path, mix: str, server: Server, first: float, token: float, longest: int = LONGEST_SECONDS
) -> Load:
    """Return a load of drawn requests of a mix, by the last `longest` seconds of a recording of requests/s."""
    rate = read_load(history).per_second()[-longest:].astype(np.float64)
    seconds, share = len(rate) // 5 * 5, mix_of(mix)
    weights, tests = weighed(server, first, token, share)
    with refusals_of(server):
        need = needs(share, tests[0], tests[1:])
    requests = drawn_requests([rate[:seconds]], [np.tile(share, (seconds, 1))], [0], [need])
    return Load(requests, seconds, weights, tests[0], history.name)


def of_requests(
    trace: Path, server: Server, first: float, token: float, longest: int = LONGEST_SECONDS, known: float = 1.0
) -> Load:
    """Return a load of the last `longest` seconds of recorded requests, by their own moments and lengths.

    :param known: share of these seconds, from their begin on, by whose requests the server is tested and needs go.
    """
    recorded = read_requests(trace).last(longest)
    past = recorded
    recorded.check_fits(trace, server.kv_tokens, server.label, ", or name a server with a larger KV cache")
    if known < 1:
        past = recorded.between(0, known * recorded.arrived[-1])
        if len(past.arrived) < LEAST_REQUESTS:
            raise EvaluationError(
                f"{trace}: {len(past.arrived)} requests in the first {100 * known:g} % of its time, and "
                f"{LEAST_REQUESTS} are needed: name a log with more requests"
            )
    kinds = past.kinds()
    weights, tests = weighed(server, first, token, [1.0] * len(kinds), kinds)
    seconds = (int(recorded.arrived[-1]) // 5 + 1) * 5
    return Load(recorded.requests(weights), seconds, weights, tests[0], trace.name)
