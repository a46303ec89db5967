"""The cluster as arrays, kept up to date by watches: capacity of the nodes and requests of their pods.

A suggested pod counts on its node until the API server says where it is: kube-scheduler does not tell an extender the
decisions that it has not written yet. Only pods that the watch shows as pending count in this way.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.placement.gpus import taken
from rlscaler_core.placement.types import MOST_GPUS, WHOLE_GPU, Float, Int, Nodes, empty_nodes
from rlscaler_scheduler.node_use import Addresses, Use
from rlscaler_scheduler.objects import (
    Json,
    NodeFacts,
    PodFacts,
    Resources,
    as_pods,
    ended,
    node_facts,
    pod_facts,
    takes_the_same,
)

MOST_UNSEEN = 1000
"""Suggestions in memory for pods that the watch has not shown yet."""

LONGEST_UID = 64
"""Characters of a uid; the API server writes 36."""

MOST_MODELS = 62
"""Models of GPUs with a bit of their own; the others share the last bit."""

log = logging.getLogger("rlscaler.scheduler")

Facts = TypeVar("Facts", NodeFacts, PodFacts)


def _readable(read: Callable[[Json, Resources], Facts], item: Json, resources: Resources) -> Facts | None:
    """Facts of an object; None, with a line in the log, for an unreadable one, since the others have to be read."""
    try:
        return read(item, resources)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        about = item.get("metadata") or {}
        name = "/".join(filter(None, (about.get("namespace"), about.get("name"))))
        log.warning("%s %s is left out, since it cannot be read: %r", read.__name__.removesuffix("_facts"), name, error)
        return None


class _Held(NamedTuple):
    """A pod on a node, with the share that it takes of each GPU."""

    facts: PodFacts
    node: str
    gpus: Float
    assumed_until: float
    """Seconds of the clock; infinite for a pod that the API server says is there."""


class Cache:
    """Nodes and their pods. Methods that take objects are the callbacks of watches; all run on one thread."""

    def __init__(
        self, resources: Resources, assumed_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.resources, self._assumed_seconds, self._clock = resources, assumed_seconds, clock
        self._row: dict[str, int] = {}
        self._free_rows: list[int] = []
        self._name_of: NDArray[np.object_] = np.zeros(0, object)
        """Names by row."""
        self._rank = np.zeros(0, np.int64)
        """Places in the order of names, by row."""
        self._ranked = 0
        self.version = 0
        """Grows whenever a node comes or goes."""
        self._nodes = empty_nodes(np.zeros((0, 2)))
        self._daemons = np.zeros(0)
        self._latency_until = np.zeros(0)
        """When the measured latency of each node ceases to be believed, in seconds since 1970, by row."""
        self._use = Use()
        self._uid_of: dict[str, str] = {}
        """Node name -> uid."""
        self._addresses = Addresses()
        self._pods: dict[str, _Held] = {}
        self._assumed: dict[str, None] = {}
        """Uids of those that are not known to be where they are held, the oldest first."""
        self._unseen: dict[str, tuple[str, float]] = {}
        """Node and end of the assumption by uid, for pods that were suggested a node before the watch showed them."""
        self._on: dict[str, set[str]] = {}
        """Node name -> uids; also of nodes that are not known yet."""
        self._models: list[str] = []
        self.pending: dict[tuple[str, str], PodFacts] = {}
        """(namespace, name) of pods without a node."""
        self.listed: set[str] = set()
        """Kinds that were listed: `nodes`, `pods`."""

    @property
    def counts(self) -> tuple[int, int, int]:
        """Nodes, pods on nodes, and how many of these are assumed."""
        return len(self._row), len(self._pods), len(self._assumed)

    def set_nodes(self, items: Sequence[Json]) -> None:
        """All nodes that exist."""
        names = {item["metadata"]["name"] for item in items}
        for name in [name for name in self._row if name not in names]:
            self._forget_node(name)
        for item in items:
            self.change_node(item, False)
        self.listed.add("nodes")

    def change_node(self, item: Json, deleted: bool) -> None:
        """One node as it is now."""
        facts = _readable(node_facts, item, self.resources)
        if facts is None:
            return
        if deleted:
            self._forget_node(facts.name)
            return
        row = self._row.get(facts.name)
        before = None if row is None else int(self._nodes.gpus[row])
        if row is None:
            row = self._new_row(facts.name)
        elif self._uid_of.get(facts.name) != facts.uid:
            # Another node of the same name: what was measured was measured of the one before.
            self._use.forget(row)
        self._uid_of[facts.name] = facts.uid
        self._write(row, facts)
        # The GPUs that pods hold were settled for the former number.
        if before != facts.gpus:
            self._recount(facts.name)

    def set_pods(self, items: Sequence[Json]) -> None:
        """All pods that exist. Assumed ones stay until their time is up."""
        uids = {item["metadata"].get("uid", "") for item in items}
        for uid, held in list(self._pods.items()):
            # An assumed pod may be missing in a list that is older than its binding.
            if uid not in uids and math.isinf(held.assumed_until):
                self._remove(uid)
        self.pending.clear()
        for item in items:
            self.change_pod(item, False)
        self.listed.add("pods")

    def change_pod(self, item: Json, deleted: bool) -> None:
        """One pod as it is now."""
        if not deleted and self._unchanged(item):
            return
        facts = _readable(pod_facts, item, self.resources)
        if facts is None:
            return
        gone = deleted or ended(item)
        self.pending.pop((facts.namespace, facts.name), None)
        if gone:
            self._remove(facts.uid)
        elif facts.node:
            self._hold(facts, facts.node, math.inf)
        else:
            self.pending[facts.namespace, facts.name] = facts
            node, until = self._unseen.pop(facts.uid, ("", 0.0))
            if until > self._clock():
                self._hold(facts, node, until)

    def _unchanged(self, item: Json) -> bool:
        """Whether a pod is held as it is: a list has each pod again, and most of them have not changed since."""
        metadata = item.get("metadata") or {}
        held, version = self._pods.get(metadata.get("uid", "")), metadata.get("resourceVersion", "")
        return bool(version) and held is not None and held.facts.version == version and math.isinf(held.assumed_until)

    def assume(self, facts: PodFacts, node: str) -> bool:
        """Take a pending pod to be on a node from now on, with the requests that the watch shows.

        :return: False for a pod that the watch does not show as pending. It counts nowhere: a caller could fill nodes
            with pods that do not exist. If the watch shows the pod in time, the pod counts from then on.
        """
        until = self._clock() + self._assumed_seconds
        shown = self.pending.get((facts.namespace, facts.name))
        if shown is not None and shown.uid == facts.uid:
            self._hold(shown, node, until)
            return True
        self._unseen.pop(facts.uid, None)
        if len(facts.uid) <= LONGEST_UID:
            self._unseen[facts.uid] = (node, until)
        if len(self._unseen) > MOST_UNSEEN:
            del self._unseen[next(iter(self._unseen))]
        return False

    def assumed(self, uid: str) -> bool:
        """Whether a pod is assumed to be on a node that the API server does not know of yet."""
        return uid in self._assumed

    def release(self, uid: str) -> None:
        """End the assumption about a pod, if there is one: it is being placed anew."""
        if uid in self._assumed:
            self._remove(uid)

    def expire(self) -> None:
        """End the assumptions whose time is up."""
        now = self._clock()
        # Assumptions have one length, so the oldest ends first.
        while self._assumed and self._pods[uid := next(iter(self._assumed))].assumed_until < now:
            self._remove(uid)

    def node_at(self, address: str) -> str | None:
        """Name of the node that has this name or address; None where no node has it."""
        return address if address in self._row else self._addresses.name_at(address)

    def measured(self, names: Sequence[str], shares: Float, until: Float) -> None:
        """Note shares (M, 2) of CPU and memory in use, which are believed until (M,) seconds since 1970."""
        rows = self.rows_of(names)
        known = rows >= 0
        self._use.measured(rows[known], shares[known], until[known], self._nodes.requested)

    def names(self) -> list[str]:
        """Names of all nodes, sorted."""
        return sorted(self._row)

    def rows_of(self, names: Iterable[str]) -> Int:
        """(N,) row of each name; -1 for a node that is not known. Rows hold until `version` changes."""
        row = self._row.get
        return np.array([row(name, -1) for name in names], np.int64)

    def in_order(self, rows: Int) -> Int:
        """Positions of the known nodes in `rows`, by the order of their names."""
        if self._ranked != self.version:
            self._rank = np.zeros(len(self._name_of), np.int64)
            for rank, name in enumerate(self.names()):
                self._rank[self._row[name]] = rank
            self._ranked = self.version
        # Positions are written to the places that the names have, which needs no sorting.
        at = np.full(len(self._name_of), -1)
        known = np.flatnonzero(rows >= 0)
        at[self._rank[rows[known]]] = known
        return at[at >= 0]

    def nodes_at(self, rows: Int) -> tuple[NDArray[np.object_], Nodes]:
        """Names and a copy of the nodes of these rows. A latency that is too old counts as not measured."""
        nodes = Nodes._make(column.take(rows, axis=0) for column in self._nodes)
        now = time.time()
        # DaemonSets' pods take room, but do not make a node count as used.
        nodes.pod_limit[:] -= self._daemons[rows]
        nodes.latency_ms[self._latency_until[rows] < now] = np.nan
        nodes.in_use[:] = self._use.at(rows, nodes, now)
        ends = nodes.empty_in_s
        # A pod without a stated end keeps its node for an unknown time: NaN, not infinity, for the networks.
        left = np.where(np.isinf(ends), np.nan, np.maximum(ends - now, 0.0))
        ends[:] = np.where(nodes.pods > 0, left, 0.0)
        return self._name_of[rows], nodes

    def daemons_at(self, rows: Int) -> Float:
        """(N,) pods of DaemonSets on the nodes of these rows."""
        daemons: Float = self._daemons[rows]
        return daemons

    def _new_row(self, name: str) -> int:
        if not self._free_rows:
            size = len(self._nodes.pods)
            # Doubling keeps the cost of a growing cluster linear.
            more = empty_nodes(np.zeros((max(size, 64), 2)))
            self._nodes = Nodes._make(map(np.concatenate, zip(self._nodes, more, strict=True)))
            self._daemons = np.concatenate([self._daemons, np.zeros(len(more.pods))])
            self._latency_until = np.concatenate([self._latency_until, np.zeros(len(more.pods))])
            self._use.grow(len(more.pods))
            self._name_of = np.concatenate([self._name_of, np.full(len(more.pods), "", object)])
            self._free_rows = list(range(len(self._nodes.pods) - 1, size - 1, -1))
        self._row[name] = row = self._free_rows.pop()
        self._name_of[row] = name
        self._use.forget(row)
        self.version += 1
        return row

    def _forget_node(self, name: str) -> None:
        row = self._row.pop(name, None)
        self._uid_of.pop(name, None)
        self._addresses.put(name, ())
        if row is not None:
            self._free_rows.append(row)
            self.version += 1

    def _write(self, row: int, facts: NodeFacts) -> None:
        n = self._nodes
        n.allocatable[row] = facts.cpu_milli, facts.memory_mib
        n.pod_limit[row], n.gpus[row], n.latency_ms[row] = facts.pods, facts.gpus, facts.latency_ms
        self._latency_until[row] = facts.latency_until
        self._addresses.put(facts.name, facts.addresses)
        n.gpu_model[row] = self._model(facts.gpu_model) if facts.gpus else 0

    def _model(self, name: str) -> int:
        if name not in self._models and len(self._models) < MOST_MODELS:
            self._models.append(name)
        # Models are bits of one number; all that come after the last free bit share it.
        return 1 << (self._models.index(name) if name in self._models else MOST_MODELS)

    def _hold(self, facts: PodFacts, node: str, until: float) -> None:
        held = self._pods.get(facts.uid)
        if held is not None and held.node == node and takes_the_same(held.facts, facts):
            until = max(until, held.assumed_until)
            self._pods[facts.uid] = held._replace(assumed_until=until, facts=facts)
            self._assumed.pop(facts.uid, None)
            if math.isfinite(until):
                self._assumed[facts.uid] = None
            if not np.array_equal(held.facts.ends_at, facts.ends_at, equal_nan=True):
                self._recount_end(node)
            return
        self._remove(facts.uid)
        if math.isfinite(until):
            self._assumed[facts.uid] = None
        self._on.setdefault(node, set()).add(facts.uid)
        self._pods[facts.uid] = _Held(facts, node, np.zeros(MOST_GPUS), until)
        if node in self._row:
            self._add(facts.uid)

    def _add(self, uid: str) -> None:
        """Count a held pod on its node, and settle which GPUs it takes."""
        held, n = self._pods[uid], self._nodes
        row, facts = self._row[held.node], held.facts
        gpus = self._gpus_of(facts, row)
        self._pods[uid] = held._replace(gpus=gpus)
        n.gpu_free[row] -= gpus
        n.requested[row] += facts.cpu_milli, facts.memory_mib
        if facts.daemon:
            self._daemons[row] += 1
        else:
            n.pods[row] += 1
            n.empty_in_s[row] = max(n.empty_in_s[row], facts.ends_at if not math.isnan(facts.ends_at) else math.inf)

    def _gpus_of(self, facts: PodFacts, row: int) -> Float:
        """(MOST_GPUS,) thousandths: of the GPU that the pod names, else by best fit; nothing where none fits."""
        if not facts.gpus:
            return np.zeros(MOST_GPUS)
        if facts.gpus == 1 and 0 <= facts.gpu_index < MOST_GPUS and facts.gpu_milli < WHOLE_GPU:
            named = np.zeros(MOST_GPUS)
            # A pod never takes more than is free there, so that no GPU falls below 0.
            named[facts.gpu_index] = min(facts.gpu_milli, self._nodes.gpu_free[row, facts.gpu_index])
            return named
        amounts: Float = taken(self._nodes.one(row), as_pods(facts))[0]
        return amounts

    def _remove(self, uid: str) -> None:
        held = self._pods.pop(uid, None)
        if held is None:
            return
        self._assumed.pop(uid, None)
        self._on[held.node].discard(uid)
        if not self._on[held.node]:
            del self._on[held.node]
        row = self._row.get(held.node)
        if row is None:
            return
        n = self._nodes
        n.gpu_free[row] += held.gpus
        n.requested[row] -= held.facts.cpu_milli, held.facts.memory_mib
        if held.facts.daemon:
            self._daemons[row] -= 1
        else:
            n.pods[row] -= 1
            self._recount_end(held.node)

    def _recount_end(self, node: str) -> None:
        if node in self._row:
            ends = [self._pods[uid].facts for uid in self._on.get(node, ())]
            last = max((math.inf if math.isnan(f.ends_at) else f.ends_at for f in ends if not f.daemon), default=0.0)
            self._nodes.empty_in_s[self._row[node]] = last

    def _recount(self, node: str) -> None:
        """Count a node's pods anew: it is new, or has other GPUs than before."""
        row, n = self._row[node], self._nodes
        n.requested[row], n.pods[row], n.empty_in_s[row], self._daemons[row] = 0.0, 0.0, 0.0, 0.0
        n.gpu_free[row] = np.where(np.arange(MOST_GPUS) < n.gpus[row], float(WHOLE_GPU), 0.0)
        # Sorted: best fit depends on the order, and two servers must count alike.
        for uid in sorted(self._on.get(node, ())):
            self._add(uid)
