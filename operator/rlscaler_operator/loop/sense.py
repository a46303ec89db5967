"""The queries of a batch: shared queries of its Prometheus, policies' own queries, and the brokers of their streams."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from logging import DEBUG, WARNING
from typing import Any, NamedTuple

from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.references import References
from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.loop.fence import Fence
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.sensing.access import Access, OwnAccess, Secret, access_of, own_access
from rlscaler_operator.sensing.answer import Bounds
from rlscaler_operator.sensing.halves import by_halves
from rlscaler_operator.sensing.kafka_access import KafkaAccess, kafka_access_of
from rlscaler_operator.sensing.labels import Labels
from rlscaler_operator.sensing.queries import Query, batch, own_queries, windows
from rlscaler_operator.sensing.results import Answers, TimedAnswers
from rlscaler_operator.sensing.shared import Shared
from rlscaler_operator.sensing.sources import Sources
from rlscaler_operator.sensing.streams import Asker, Streams
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.settings import Settings
from rlscaler_operator.shadow.calibration import Histograms, histograms, promql
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry

log = logging.getLogger("rlscaler.sense")

PATIENCE_SECONDS = 0.25
"""Longest time that a batch waits, after the shared answers, for those to policies' own queries, and that Prometheus
may take for these before they count as slow."""

REMEMBERED = 32
"""Prometheuses of which the queries are remembered until the policies change."""

IN_ONE_REQUEST = 20
"""Policies of one namespace whose own queries are sent as one."""

OwnAnswers = dict[Key, asyncio.Task[TimedAnswers]]
"""The running queries of each policy that has queries or a stream of its own."""


class Answered(NamedTuple):
    """The answers that a batch shares; times on the monotonic clock."""

    answers: Answers
    began: float
    at: float


class Sensing:
    """Sends the queries of policies, and remembers the policies whose own queries are slow."""

    def __init__(
        self,
        settings: Settings,
        cache: WatchCache,
        registry: Registry,
        metrics: Metrics,
        secrets: References[Secret],
        fence: Fence,
    ) -> None:
        self._settings, self._cache, self._registry, self._fence = settings, cache, registry, fence
        self._metrics, self._secrets = metrics, secrets
        self.sources = Sources(
            settings.prometheus_timeout_seconds, Bounds(settings.answer_bytes, settings.answer_series)
        )
        self._shared = Shared(self.sources, self._build, settings.prometheus_timeout_seconds)
        self.streams = Streams(settings.kafka_timeout_seconds)
        self._labels = Labels.of(settings)
        self._asked: dict[Access, tuple[list[Subject], list[Query]]] = {}
        self._apart: set[Key] = set()
        """Policies whose own queries were slow or failed: they are asked alone and not waited for."""

    async def close(self) -> None:
        await self.sources.close()
        self.streams.close()

    def access(self, policy: Policy) -> Access | None:
        """Return the access to a policy's Prometheus; None while its credential is read for the first time."""
        return access_of(policy.spec.metrics, policy.key, self._settings, self._secrets)

    def labels(self, access: Access) -> Labels:
        """Return the labels of series at a Prometheus."""
        return replace(self._labels, labels=access.labels)

    async def query(self, policy: Policy, promql: Callable[[Labels], str]) -> list[dict[str, Any]]:
        """Return the series of one query at a policy's Prometheus. Raises MetricsError."""
        access = self.access(policy)
        if access is None:
            raise MetricsError("its credential is being read for the first time")
        return await self.sources.instant(access, promql(self.labels(access)))

    async def ask(self, access: Access, policies: Sequence[Policy]) -> Answers:
        """Return the answers for all `policies`; those for which no queries can be built are without one."""
        queries, fine = await self._fence.for_all(policies, "build its queries", partial(self._queries, access))
        with self._metrics.stage("sense"):
            return await self._shared.ask(access, [policy.subject for policy in fine], queries)

    def _queries(self, access: Access, policies: Sequence[Policy]) -> list[Query]:
        """Return the queries for all policies; they are built again when the subjects change."""
        subjects = [policy.subject for policy in policies]
        if access not in self._asked or self._asked[access][0] != subjects:
            if len(self._asked) > REMEMBERED:
                self._asked.clear()
            self._asked[access] = subjects, self._build(subjects, access)
        return self._asked[access][1]

    def _build(self, subjects: Sequence[Subject], access: Access) -> list[Query]:
        return batch(subjects, *windows(self._settings), self.labels(access))

    async def histograms(self, access: Access, policies: Sequence[Policy], seconds: float) -> Histograms:
        """Return the latency histograms of the policies' services over the last seconds.

        Those that cannot be asked for are left out, without those of any other policy.
        """

        async def of(some: Sequence[Policy]) -> Histograms:
            query = promql([policy.subject for policy in some], seconds, self.labels(access))
            return histograms(await self.sources.instant(access, query))

        measured: Histograms = {}
        parts = await by_halves(
            "ask Prometheus for histograms", policies, of, lambda error: getattr(error, "divisible", True)
        )
        for some, result in parts:
            if isinstance(result, MetricsError):
                # Of a Prometheus that cannot be reached each policy has a condition.
                log.log(WARNING if result.divisible else DEBUG, "no histograms of %s/%s…: %s", *some[0].key, result)
            elif isinstance(result, Exception):
                self._fence.failed(some[0], "build the query for its latency histogram", result)
            else:
                measured |= result
        return measured

    def ask_own(self, access: Access, policies: list[Policy]) -> OwnAnswers:
        """Start the queries of single policies, their own queries and their streams."""
        own = self._ask_queries(access, [policy for policy in policies if policy.subject.queries])
        self.look_at_streams([policy for policy in policies if policy.spec.signal], own)
        return own

    async def wait_for_prompt(self, own: OwnAnswers) -> None:
        """Wait a moment for the own queries of policies that are not set apart."""
        prompt = {task for key, task in own.items() if key not in self._apart}
        if prompt:
            await asyncio.wait(prompt, timeout=PATIENCE_SECONDS)

    def _ask_queries(self, access: Access, policies: list[Policy]) -> OwnAnswers:
        """Start policies' own queries: several of a namespace in one request, unless they are set apart."""
        tasks: OwnAnswers = {}
        together: dict[tuple[OwnAccess, str], list[Policy]] = defaultdict(list)

        def sort_in(policy: Policy) -> None:
            own = own_access(access, policy.spec.metrics, policy.key[0], self._settings)
            own_queries(policy.subject)
            if policy.key in self._apart:
                tasks[policy.key] = self._ask_some(own, [policy], apart=True)
            else:
                together[own, policy.key[0]].append(policy)

        for policy in policies:
            self._fence.run(policy, "prepare its own queries", sort_in, policy)
        for (own, _), crowd in together.items():
            for begin in range(0, len(crowd), IN_ONE_REQUEST):
                some = crowd[begin : begin + IN_ONE_REQUEST]
                tasks |= dict.fromkeys((policy.key for policy in some), self._ask_some(own, some))
        return tasks

    def look_at_streams(self, policies: list[Policy], own: OwnAnswers) -> None:
        """Start to look at the streams of `policies`, all of a cluster at once; `own` waits for them as for queries."""
        together: dict[KafkaAccess, list[tuple[Policy, Asker]]] = defaultdict(list)

        def sort_in(policy: Policy) -> None:
            assert policy.spec.signal is not None
            kafka = policy.spec.signal.kafka
            ready = sum(target.ready for target in policy.deployments_in(self._cache).values() if target is not None)
            access = kafka_access_of(kafka, policy.key[0], self._settings, self._secrets)
            together[access].append((policy, Asker(policy.key, kafka, ready)))

        for policy in policies:
            self._fence.run(policy, "prepare the look at its stream", sort_in, policy)
        looks = {
            access: asyncio.create_task(self.streams.look(access, [asker for _, asker in crowd]))
            for access, crowd in together.items()
        }
        for access, crowd in together.items():
            for policy, _ in crowd:
                own[policy.key] = asyncio.create_task(_with_look(looks[access], own.get(policy.key)))

    def _ask_some(self, own: OwnAccess, policies: list[Policy], apart: bool = False) -> asyncio.Task[TimedAnswers]:
        queries = {query.name: query for policy in policies for query in own_queries(policy.subject)}
        namespace = policies[0].key[0]
        return asyncio.create_task(
            self.sources.ask_own(own.access, namespace, list(queries.values()), own.parameters, apart)
        )

    def set_apart(self, policies: Iterable[Policy], answered: Answered, own: OwnAnswers) -> None:
        """Set policies apart whose own queries are slow or fail, until they neither are nor do.

        Which of several in one request is the slow one shows when each is queried alone.
        """
        # Prometheus itself is down: that says nothing about single policies' queries.
        if answered.answers and all(isinstance(answer, MetricsError) for answer in answered.answers.values()):
            return
        for policy in policies:
            if (task := own.get(policy.key)) is not None:
                answers = task.result()
                names = (query.name for query in own_queries(policy.subject))
                failed = any(isinstance(answers.answers.get(name), MetricsError) for name in names)
                apart = failed or answers.seconds > PATIENCE_SECONDS
                (self._apart.add if apart else self._apart.discard)(policy.key)

    def forget_gone(self) -> None:
        """Forget policies that were set apart and are there no more."""
        self._apart = {key for key in self._apart if self._registry.get(key) is not None}


async def _with_look(look: asyncio.Task[float], own: asyncio.Task[TimedAnswers] | None) -> TimedAnswers:
    """Wait for a look at the brokers, and for the policy's own queries where it has some."""
    seconds = await asyncio.shield(look)
    answers = TimedAnswers({}) if own is None else await own
    return answers._replace(seconds=max(seconds, answers.seconds))


def cancel(own: OwnAnswers) -> None:
    """Cancel the queries of single policies."""
    for task in own.values():
        task.cancel()
