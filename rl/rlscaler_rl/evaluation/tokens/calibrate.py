"""Calibration of the token level on a real server: load tests of some mixes, constants, and their error on another."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from rlscaler_core.decision.types import Float, Int
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.tokens.client import Sent
from rlscaler_rl.evaluation.tokens.constants import fitted, measured, simulated
from rlscaler_rl.evaluation.tokens.measurements import Measured, Measurements
from rlscaler_rl.results.document import Document, Progress
from rlscaler_rl.results.table import Column, Table
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.tokens.servers import Server

SHARES = (0.2, 0.5, 0.8)
"""Loads of each mix, as shares of the requests/s that the server answered when all came at once."""

WAVES = 4
"""Full batches of the load test in which all requests come at once, at least."""

SPREAD = 0.5
"""Lengths are drawn uniformly within this share of the mix's."""

FAR_PERCENT = 60
"""Error of a figure of the mix held out from which the constants are of no use."""

LONGEST = 1_000_000
"""Tokens of a mix's prompt or answer at most."""

NAMES = {"first_p50": "TTFT p50", "first_p95": "TTFT p95", "token_p50": "TPOT p50", "token_p95": "TPOT p95"}
"""Figures by name; the reciprocal of `all`, where all requests come at once, is the capacity."""


class Mix(NamedTuple):
    """Mean tokens of a prompt and of an answer."""

    prompt: int
    answer: int

    @property
    def label(self) -> str:
        """Return the text that `mixes_of` reads."""
        return f"{self.prompt}+{self.answer}"


class LoadTarget(Protocol):
    """A model server, or a simulator of one, that load tests are sent to."""

    @property
    def url(self) -> str:
        """Return its address."""

    def send(self, at: Float, prompt: Int, answer: Int) -> Sent:
        """Answer requests that come at their moments (M,) in seconds, with so many tokens (M,)."""


class LoadTest(Document):
    """One load test, as measured and as simulated with the constants."""

    mix: str
    share: float | None
    """Requests/s over those that the server answers at most; None: all requests came at once."""

    requests: int
    held_out: bool
    """The constants were found without it."""

    measured: dict[str, float]
    simulated: dict[str, float]
    """Fields of `constants.Figures`."""

    def error(self, name: str) -> float:
        """Return the error of a simulated figure in percent; of the capacity where the name is `all`."""
        over = self.simulated[name] / self.measured[name]
        return 100 * (1 / over - 1 if name == "all" else over - 1)


class Calibration(Document):
    """Constants of a server with the load tests that they are by."""

    server: dict[str, Any]
    """Fields of `simulation.tokens.servers.Server`."""

    loads: list[LoadTest]

    def table(self) -> Table:
        """Return a row for each load test."""
        columns: dict[str, Column] = {
            "mix": lambda row: row.mix + (", held out" if row.held_out else ""),
            "load": lambda row: "all at once" if row.share is None else f"{100 * row.share:.0f} %",
        }
        columns |= {f"{text} ms": _cell(name) for name, text in NAMES.items()}
        columns["requests/s"] = _requests_per_second
        title = f"{self.server['label']}: measured / simulated"
        return Table.of(columns, self.loads, title, text_columns=2)

    def notes(self) -> list[str]:
        """Return sentences on the constants and on their largest errors."""
        of = self.server
        held_out = [load for load in self.loads if load.held_out]
        worst = {text: max((load.error(name) for load in held_out), key=abs) for name, text in NAMES.items()}
        worst["capacity"] = max((load.error("all") for load in held_out if load.share is None), key=abs)
        far = [text for text, error in worst.items() if abs(error) > FAR_PERCENT]
        warning = [f"The constants do not describe this server: {', '.join(far)} are far off on the mix held out"]
        return [
            *(warning if far else []),
            f"An iteration takes {of['iteration_ms']:.3g} ms + {of['sequence_ms']:.3g} a sequence + "
            f"{of['prompt_ms']:.3g} a prompt token + {of['held_ms']:.3g} a KV token; {of['request_ms']:.3g} ms of a "
            "first token are outside of iterations",
            "Largest errors on the mix held out: " + ", ".join(f"{text} {e:+.0f} %" for text, e in worst.items()),
        ]


def _cell(name: str) -> Column:
    return lambda row: _pair(row.measured[name], row.simulated[name], row.error(name))


def _requests_per_second(row: LoadTest) -> str:
    if row.share is not None:
        return ""
    real, model = (1000 * row.requests / figures["all"] for figures in (row.measured, row.simulated))
    return _pair(real, model, row.error("all"))


def _pair(measured: float, simulated: float, error: float) -> str:
    numbers = (f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in (measured, simulated))
    return f"{' / '.join(numbers)} ({error:+.0f} %)"


def mixes_of(text: str) -> list[Mix]:
    """Return mixes by text such as `700+20,100+100,300+60`. Raises EvaluationError that names the remedy."""
    mixes = []
    for part in text.split(","):
        prompt, _, answer = part.partition("+")
        short = len(part) < 32 and prompt.strip().isdecimal() and answer.strip().isdecimal()
        if not (short and int(prompt) > 1 and int(answer) > 3):
            raise EvaluationError(
                f"--mixes {part.strip()[:40]!r} is not PROMPT+ANSWER with at least 2 and 4 tokens, as in 700+20"
            )
        mixes.append(Mix(int(prompt), int(answer)))
        if max(mixes[-1]) > LONGEST:
            raise EvaluationError(f"--mixes {part.strip()!r}: at most {LONGEST:,} tokens")
    if len(mixes) < 3 or len(set(mixes)) < len(mixes):
        raise EvaluationError(
            f"--mixes {text!r}: two mixes for the constants and one to check them by are needed, each another"
        )
    return mixes


def calibrated(
    target: LoadTarget,
    limits: Server,
    mixes: Sequence[Mix],
    requests: int,
    tell: Progress,
    file: Path | None = None,
    resume: bool = False,
) -> Calibration:
    """Test a server as `load_tests` does, find its constants on all mixes but the last, and check them on the last.

    :param limits: the server with its KV cache and the most tokens and sequences of an iteration; the rest is not read.
    :param requests: requests of each load test; where all come at once, at least `WAVES` full batches.
    :param file: where complete load tests are written; with `resume` those in it are not repeated.

    Raises EvaluationError naming the address, the option or the file, and the remedy.
    """
    done = measurements(target, limits, mixes, requests)
    if file is not None and resume:
        done = done.resumed(file)
    try:
        load_tests(target, limits, mixes, done, tell, file)
        tell("constants")
        order = sorted(done.tests, key=lambda test: test.share != SHARES[0])
        constants = fitted(limits, [test.sent for test in order if test.mix != mixes[-1].label])
        return compared(constants, done.tests, mixes[-1:])
    except (EvaluationError, ScenarioError) as error:
        tests = f"{len(done.tests)} of {len(mixes) * (1 + len(SHARES))} load tests"
        remedy = f"; {tests} are in {file}: repeat the command with --resume" if file and done.tests else ""
        raise EvaluationError(f"{error}{remedy}") from error


def measurements(target: LoadTarget, limits: Server, mixes: Sequence[Mix], requests: int) -> Measurements:
    """Return measurements of a server without a load test."""
    labels = [mix.label for mix in mixes]
    return Measurements(
        model=limits.label, url=target.url, mixes=labels, requests=requests, sequences=limits.sequences, tests=[]
    )


def load_tests(
    target: LoadTarget,
    limits: Server,
    mixes: Sequence[Mix],
    done: Measurements,
    tell: Progress,
    file: Path | None = None,
) -> None:
    """Add the load tests that are not done yet: under each mix all requests at once, then each of `SHARES`.

    Raises EvaluationError where a request may need half of the KV cache, and as the target does.
    """
    longest = max(int((1 + SPREAD) * (mix.prompt + mix.answer)) for mix in mixes)
    if longest >= limits.kv_tokens // 2:
        raise EvaluationError(
            f"--mixes: a request may have {longest:,} tokens, half of the KV cache of {limits.kv_tokens:,} or more; "
            "shorten the mixes, or give the server more memory for its cache"
        )
    count = max(done.requests, WAVES * limits.sequences)
    for number, (mix, share) in enumerate(product(mixes, (None, *SHARES))):
        if share is None:
            rng, together = np.random.default_rng([mixes.index(mix), 32]), number
            moments, load = np.zeros(count), "all at once"
        else:
            per_second = share * count / done.tests[together].sent.seconds
            moments, load = np.cumsum(rng.exponential(1 / per_second, done.requests)), f"{per_second:.3g} requests/s"
        prompt, answer = _lengths(mix, len(moments), rng)
        # Those of an earlier run are drawn, too, so that the others are the same as in a run of all.
        if number < len(done.tests):
            continue
        tell(f"{mix.label} tokens, {load}")
        done.tests.append(Measured.of(mix.label, share, target.send(moments - moments[0], prompt, answer)))
        if file is not None:
            done.write(file)


def _lengths(mix: Mix, count: int, rng: np.random.Generator) -> list[Int]:
    around = rng.uniform(1 - SPREAD, 1 + SPREAD, (2, count))
    return [np.maximum(np.rint(mean * each), 2).astype(np.int32) for mean, each in zip(mix, around, strict=True)]


def compared(server: Server, tests: Sequence[Measured], held_out: Collection[Mix]) -> Calibration:
    """Play load tests with the constants of `server`, which were found without the mixes `held_out`.

    Raises ScenarioError where a request needs half of the KV cache.
    """
    played = simulated(server, [test.sent for test in tests])
    labels = {mix.label for mix in held_out}
    return Calibration(
        server=asdict(server),
        loads=[
            LoadTest(
                mix=test.mix,
                share=test.share,
                requests=len(test.requests),
                held_out=test.mix in labels,
                measured=measured(test.sent)._asdict(),
                simulated=figures._asdict(),
            )
            for test, figures in zip(tests, played, strict=True)
        ],
    )


def draw(calibration: Calibration, path: Path) -> None:
    """Draw measured and simulated times to the first and per further token, one column for each mix."""
    from rlscaler_rl.results.figures import figure

    mixes = list(dict.fromkeys(load.mix for load in calibration.loads))
    canvas = figure(3.4 * len(mixes), 5.2)
    grid = canvas.subplots(2, len(mixes), sharey="row", squeeze=False)
    for column, mix in enumerate(mixes):
        loads = [load for load in calibration.loads if load.mix == mix]
        loads.sort(key=lambda load: np.inf if load.share is None else load.share)
        places = range(len(loads))
        labels = ["all at\nonce" if load.share is None else f"{100 * load.share:.0f} %" for load in loads]
        for row, (kind, text) in enumerate((("first", "first token"), ("token", "each further token"))):
            axes = grid[row][column]
            for percent, colour in (("p50", "#4b7bbf"), ("p95", "#d1243c")):
                name = f"{kind}_{percent}"
                real = [load.measured[name] / 1000 for load in loads]
                model = [load.simulated[name] / 1000 for load in loads]
                axes.plot(places, real, "o", color=colour, label=f"{percent} measured")
                axes.plot(places, model, "-", color=colour, label=f"{percent} simulated")
            axes.set_yscale("log")
            axes.set_xticks(list(places), labels)
            if not column:
                axes.set_ylabel(f"seconds to the {text}" if not row else f"seconds for {text}")
        grid[0][column].set_title(f"{mix} tokens" + (", held out" if loads[0].held_out else ""))
    handles, labels = grid[0][0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=4)
    canvas.savefig(path, dpi=150)
