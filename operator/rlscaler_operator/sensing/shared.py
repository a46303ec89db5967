"""Shared queries of many policies, asked by halves where Prometheus refuses them, until those at fault are alone."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.answer import SLOW
from rlscaler_operator.sensing.halves import Results, by_halves
from rlscaler_operator.sensing.queries import Query
from rlscaler_operator.sensing.results import Answers, Key, Reading, unknown
from rlscaler_operator.sensing.sources import Sources
from rlscaler_operator.sensing.subject import Subject

PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 30.0, 300.0
"""Seconds after which policies that were asked apart are asked with the others again, and policies at fault alone; the
pause of the latter doubles with each failure."""

BUILT = 16
"""Batches of queries that are remembered: of all policies, and of those that are asked apart."""

Build = Callable[[Sequence[Subject], Access], list[Query]]


@dataclass(eq=False, slots=True)
class Part:
    """Policies that are asked apart from the others in one query."""

    subjects: frozenset[Subject]
    until: float
    """Monotonic time at which they are asked with the others again, or at which one at fault is asked again."""
    pause: float = PAUSE_SECONDS
    error: MetricsError | None = None
    """Error of a single policy at fault."""


PartResults = tuple[Part | None, Results[Subject, dict[Key, Reading]]]
"""Part that was asked apart, or None for all other policies, and the results."""


class Shared:
    """Asks the shared queries, and remembers by access and query which policies are asked apart."""

    def __init__(self, sources: Sources, build: Build, timeout_seconds: float) -> None:
        self._sources, self._build, self._timeout_seconds = sources, build, timeout_seconds
        self._parts: dict[tuple[Access, str], list[Part]] = {}
        self._built: OrderedDict[tuple[Access, tuple[Subject, ...]], list[Query]] = OrderedDict()

    async def ask(self, access: Access, subjects: Sequence[Subject], queries: Sequence[Query]) -> Answers:
        """Return the answers to the `queries` of some subjects by name; never raises for an answer of a server."""
        now = time.monotonic()
        deadline = now + 2 * self._timeout_seconds
        for key, parts in list(self._parts.items()):
            self._keep(key, [p for p in parts if now < p.until + (LONGEST_PAUSE_SECONDS if p.error is not None else 0)])
        apart = {query.name: self._parts.get((access, query.name), []) for query in queries}
        rest = {name: _without(subjects, parts) for name, parts in apart.items()}
        first = [self._query(access, query.name, rest[query.name]) if apart[query.name] else query for query in queries]
        answers = await self._sources.ask(access, [query for query in first if query is not None])
        lives = any(not isinstance(answer, MetricsError) for answer in answers.values())
        for name, parts in apart.items():
            answer = answers.get(name, {})
            error = answer if isinstance(answer, MetricsError) and answer.divisible and len(rest[name]) > 1 else None
            if parts or (error is not None and (lives or error.reason != SLOW)):
                outcomes: list[PartResults] = [(None, await self._divided(access, name, rest[name], answer, deadline))]
                outcomes += [(part, await self._again(access, name, part, subjects, deadline)) for part in parts]
                self._keep((access, name), list(_parts(outcomes)))
                answers[name] = _merged([result for _, results in outcomes for result in results])
        return answers

    def _keep(self, key: tuple[Access, str], parts: list[Part]) -> None:
        if parts:
            self._parts[key] = parts
        else:
            self._parts.pop(key, None)

    def _queries(self, access: Access, subjects: Sequence[Subject]) -> list[Query]:
        """Return the queries for subjects that are asked apart from others; the newest ones are remembered."""
        key = access, tuple(subjects)
        if key not in self._built:
            self._built[key] = self._build(subjects, access)
        self._built.move_to_end(key)
        while len(self._built) > BUILT:
            self._built.popitem(last=False)
        return self._built[key]

    def _query(self, access: Access, name: str, subjects: Sequence[Subject]) -> Query | None:
        return next((query for query in self._queries(access, subjects) if query.name == name), None)

    async def _ask(self, access: Access, name: str, subjects: Sequence[Subject]) -> dict[Key, Reading]:
        """Return the readings of some subjects. Raises MetricsError."""
        query = self._query(access, name, subjects)
        answer = {} if query is None else (await self._sources.ask(access, [query]))[name]
        if isinstance(answer, MetricsError):
            raise answer
        return answer

    async def _divided(
        self,
        access: Access,
        name: str,
        subjects: Sequence[Subject],
        answer: dict[Key, Reading] | MetricsError,
        deadline: float,
    ) -> Results[Subject, dict[Key, Reading]]:
        """Return the answers for parts of some subjects, whose answer as a whole is known."""
        first = [answer]

        async def ask(some: Sequence[Subject]) -> dict[Key, Reading]:
            if not first:
                return await self._ask(access, name, some)
            if isinstance(whole := first.pop(), MetricsError):
                raise whole
            return whole

        def divisible(error: Exception) -> bool:
            # What is slow is divided at the next tick: policies wait for their decisions.
            slow = isinstance(error, MetricsError) and (error.reason == SLOW or not error.divisible)
            return not slow and time.monotonic() < deadline

        return await by_halves(f"ask Prometheus for {name}", subjects, ask, divisible) if subjects else []

    async def _again(
        self, access: Access, name: str, part: Part, subjects: Iterable[Subject], deadline: float
    ) -> Results[Subject, dict[Key, Reading]]:
        """Return the answers for a part that is asked apart; of one at fault the last error, until its time is over."""
        here = [subject for subject in subjects if subject in part.subjects]
        if not here:
            return []
        if part.error is not None and time.monotonic() < part.until:
            return [(here, part.error)]
        try:
            answer: dict[Key, Reading] | MetricsError = await self._ask(access, name, here)
        except MetricsError as error:
            answer = error
        return await self._divided(access, name, here, answer, deadline)


def _parts(outcomes: Iterable[PartResults]) -> Iterator[Part]:
    """Yield the parts that are asked apart from now on: policies at fault, and for a while those asked with them."""
    now = time.monotonic()
    for part, results in outcomes:
        if part is not None and not results:
            yield part  # None of its policies is due.
        for some, result in results:
            error = result if isinstance(result, MetricsError) else None
            refused = error is not None and error.divisible
            if part is not None and part.error is not None and now < part.until:
                yield part  # It was not asked.
            elif refused and len(some) == 1:
                pause = PAUSE_SECONDS if part is None or part.error is None else 2 * part.pause
                yield Part(frozenset(some), now + min(pause, LONGEST_PAUSE_SECONDS), pause, error)
            elif refused:
                half = len(some) // 2
                yield from (Part(frozenset(each), now + PAUSE_SECONDS) for each in (some[:half], some[half:]))
            elif len(results) > 1:
                yield Part(frozenset(some), now + PAUSE_SECONDS)
            elif part is not None and (part.error is None or error is not None):
                yield part


def _without(subjects: Sequence[Subject], parts: Sequence[Part]) -> Sequence[Subject]:
    apart = frozenset[Subject]().union(*(part.subjects for part in parts))
    return [subject for subject in subjects if subject not in apart] if apart else subjects


def _merged(results: Results[Subject, dict[Key, Reading]]) -> dict[Key, Reading]:
    """Return the readings of all parts; those of policies that could not be asked for are unknown, with the reason."""
    merged: dict[Key, Reading] = {}
    for _, result in results:
        if not isinstance(result, Exception):
            merged |= result
    for some, result in results:
        if isinstance(result, MetricsError):
            alone = "asked for this policy alone: " if len(some) == 1 else ""
            reading = unknown(result.reason, f"{alone}{result}")
            for key in {key for subject in some for key in subject.keys}:
                merged.setdefault(key, reading)
    return merged
