"""What kopf remembers of objects between events: nothing, as only watch handlers are registered.

By default it copies each object deeply, several times an event, to compare it with its former self; with a thousand
policies that is half of the operator's CPU time while pods come and go.
"""

from __future__ import annotations

from typing import Any

from kopf import DiffBaseStorage, ProgressStorage


class NoDifferences(DiffBaseStorage):
    """Nothing is compared."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        """No handler asks for it."""


class NoProgress(ProgressStorage):
    """No handler has any."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        """No handler asks for it."""

    def purge(self, **_: Any) -> None:
        """There is nothing."""

    def touch(self, **_: Any) -> None:
        """There is nothing."""

    def clear(self, *, essence: Any) -> Any:
        return essence
