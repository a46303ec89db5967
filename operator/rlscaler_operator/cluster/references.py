"""ConfigMaps and Secrets that policies name.

They are read one by one, by name: a watch would need the right to list all Secrets of a namespace and would hold every
ConfigMap in memory. A change is recognized by the metadata.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from rlscaler_operator.cluster.kube import Kube, object_path
from rlscaler_operator.exceptions import KubeError, OperatorError

log = logging.getLogger("rlscaler.references")

RETRY_SECONDS = 5.0
"""Time after which an unusable object is read again."""

FORGET_SECONDS = 900.0
"""Time without a request after which an object is forgotten: more than two of the longest intervals."""

LOAD_SECONDS = 60.0
"""Longest wait for the load of an object: the trial of a model may have to wait for other models. A thread cannot be
ended, so a late load goes on and its result is taken later; no second load of the same version begins before."""

LONGEST_RETRY_SECONDS = 300.0
"""Longest pause after an unforeseen failure of a load; each further failure doubles the pause."""

CONCURRENCY = 4
"""Objects of a kind that are read at the same time."""

_ACCOUNT = re.compile(r'"system:serviceaccount:(?P<namespace>[^:"]+):(?P<name>[^:"]+)"')
"""Pattern of the refused account in the API server's message."""

T = TypeVar("T")

Version = tuple[str, str]
"""uid and resourceVersion."""


class Name(NamedTuple):
    """Name of one object, or of one key of it."""

    namespace: str
    name: str
    key: str = ""


@dataclass(slots=True)
class Held(Generic[T]):
    """State of one object. Neither a value nor an error means that it is being read for the first time."""

    value: T | None = None
    """The last value that could be loaded."""
    error: OperatorError | None = None
    """Why the present object is unusable; a value beside it is an older one."""
    version: Version = ("", "")
    """Version of the object that was last loaded, or refused as unusable."""
    loading: tuple[Version, asyncio.Task[T]] | None = None
    """Version whose load did not end in time."""
    retry_seconds: float = 0.0
    """Pause before the object is read again; 0 = the usual one."""
    looked_at: float = float("-inf")
    wanted_at: float = float("-inf")
    looking: bool = False
    """True while the object is being read."""

    @property
    def pending(self) -> bool:
        return self.value is None and self.error is None


@dataclass(frozen=True, slots=True)
class Source(Generic[T]):
    """Kind of objects and its loader."""

    kind: str
    plural: str
    load: Callable[[Name, Mapping[str, Any]], T]
    """Returns the value of an object; it runs in a thread. Raises OperatorError."""
    keeps_last_good: bool
    """True where a value outlives its object. An error of the API server ends no value."""
    error: type[OperatorError]
    """Class of the errors of this kind."""
    remedy: str
    """Remedy for a missing object, for messages."""


class References(Generic[T]):
    """Objects of one kind, each read again every `reload_seconds`."""

    def __init__(
        self, kube: Kube, source: Source[T], reload_seconds: float, changed: Callable[[], None] = lambda: None
    ) -> None:
        self._kube, self._source, self._reload_seconds, self._changed = kube, source, reload_seconds, changed
        self._held: dict[Name, Held[T]] = {}
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(CONCURRENCY)

    def get(self, name: Name) -> Held[T]:
        """Return the present state of an object; the first request starts to read it."""
        held = self._held.get(name)
        if held is None:
            held = self._held[name] = Held()
            self._wake.set()
        held.wanted_at = time.monotonic()
        return held

    async def run(self) -> None:
        """Read due objects repeatedly until cancelled; an object that takes long to load delays no other."""
        async with asyncio.TaskGroup() as looks:
            while True:
                self._wake.clear()
                for name, held in self._begin():
                    looks.create_task(self._look(name, held))
                try:
                    async with asyncio.timeout(self._pause()):
                        await self._wake.wait()
                except TimeoutError:
                    pass

    async def refresh(self) -> None:
        """Read all due objects once."""
        await asyncio.gather(*(self._look(name, held) for name, held in self._begin()))

    def _begin(self) -> list[tuple[Name, Held[T]]]:
        """Mark the due objects as being read, and return them."""
        now = time.monotonic()
        self._held = {name: held for name, held in self._held.items() if now - held.wanted_at < FORGET_SECONDS}
        due = [(name, held) for name, held in self._held.items() if not held.looking and self._due(held) <= now]
        for _, held in due:
            held.looking = True
        return due

    def _due(self, held: Held[T]) -> float:
        retry = max(RETRY_SECONDS, held.retry_seconds)
        return held.looked_at + (retry if held.error is not None else self._reload_seconds)

    def _pause(self) -> float:
        soonest = min((self._due(held) for held in self._held.values() if not held.looking), default=float("inf"))
        return min(max(0.1, soonest - time.monotonic()), self._reload_seconds)

    async def _look(self, name: Name, held: Held[T]) -> None:
        before = held.value, str(held.error or "")
        try:
            await self._read(name, held)
            held.retry_seconds = 0.0
        except OperatorError as error:
            held.retry_seconds = 0.0
            self._refuse(name, held, error)
        except Exception as error:
            held.retry_seconds = min(LONGEST_RETRY_SECONDS, 2 * max(RETRY_SECONDS, held.retry_seconds))
            log.exception("%s %s/%s could not be read", self._source.kind, name.namespace, name.name)
            self._refuse(name, held, self._source.error(f"{self._called(name)}: {error!r}"))
        held.looked_at, held.looking = time.monotonic(), False
        self._wake.set()
        if (held.value, str(held.error or "")) != before:
            self._changed()

    async def _read(self, name: Name, held: Held[T]) -> None:
        """Read and load an object where its version is new. Raises OperatorError, and any error of the loader."""
        path = object_path("v1", self._source.plural, name.namespace, name.name)
        begun = held.loading
        body: dict[str, Any] = {}
        async with self._slots:
            # Of a known object only the metadata are read first: an unchanged version ends the look.
            if held.version != ("", "") or begun is not None:
                version = _version(await self._kube.get_metadata(path))
                if begun is None and version == held.version:
                    return
                if begun is not None and version != begun[0]:
                    begun = None
            if begun is None:
                body = await self._kube.get(path)
        if begun is None:
            load = asyncio.create_task(asyncio.to_thread(self._source.load, name, body))
            load.add_done_callback(lambda done: done.cancelled() or done.exception())  # also where it is given up
            begun = held.loading = _version(body.get("metadata") or {}), load
            await asyncio.wait({load}, timeout=LOAD_SECONDS)
        version, load = begun
        if not load.done():
            text = f"{self._called(name)} could not be loaded within {LOAD_SECONDS:g} s: {self._source.remedy}"
            raise self._source.error(text)
        held.loading = None
        try:
            held.value = load.result()
        except OperatorError:
            held.version = version  # unusable until it changes
            raise
        held.version, held.error = version, None

    def _refuse(self, name: Name, held: Held[T], error: OperatorError) -> None:
        if isinstance(error, KubeError):
            if error.status not in (403, 404) and held.value is not None:
                log.warning("%s was not looked at: %s", self._called(name), error)
                return
            held.version = ("", "")
            error = self._said(name, error)
        if not self._source.keeps_last_good:
            held.value = None
        held.error = error

    def _said(self, name: Name, error: KubeError) -> OperatorError:
        reason = {403: f"{self._source.kind}Forbidden", 404: f"{self._source.kind}Missing"}.get(error.status)
        if error.status == 404:
            return self._source.error(f"{self._called(name)} does not exist: {self._source.remedy}", reason)
        if error.status == 403:
            text = f"{self._called(name)} may not be read by the operator; {self._grant(name, error)}"
            return self._source.error(text, reason)
        return self._source.error(f"{self._called(name)} cannot be read: {error}", error.reason)

    def _grant(self, name: Name, error: KubeError) -> str:
        """Return the command that grants this one object; the API server's answer names the account."""
        account = _ACCOUNT.search(str(error))
        if account is None:
            return f"grant the operator's ServiceAccount the verb get ({error})"
        role = f"rlscaler-{self._source.kind.lower()}-{name.name}"
        verb = f"--verb=get --resource={self._source.plural} --resource-name={name.name}"
        return (
            f"grant it with: kubectl create role {role} -n {name.namespace} {verb} && "
            f"kubectl create rolebinding {role} -n {name.namespace} --role={role} "
            f"--serviceaccount={account['namespace']}:{account['name']}"
        )

    def _called(self, name: Name) -> str:
        return f"{self._source.kind} {name.namespace}/{name.name}"


def _version(metadata: Mapping[str, Any]) -> Version:
    return metadata.get("uid", ""), metadata.get("resourceVersion", "")
