"""Reader of audit logs, rotated and live ones."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlscaler_operator.exceptions import RecordError
from rlscaler_operator.records.audit import files_of

NAME = "audit.jsonl"
"""File name of the log in a folder."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log: a decision, the sharing of a budget, or neither because of a problem."""

    file: Path
    number: int
    record: dict[str, Any] | None = None
    sharing: dict[str, Any] | None = None
    """Record of a shared budget, in place of a decision."""
    problem: str = ""
    torn: bool = False
    """True where kill -9 or a full disk cut the line short; only this decision is lost."""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.number}"

    @property
    def policy(self) -> str:
        """Policy of a decision, as namespace/name."""
        record = self.record or {}
        return f"{record.get('namespace')}/{record.get('name')}"

    def concerns(self, policy: str) -> bool:
        """Return True for a decision of the policy NAMESPACE/NAME, and for a sharing that the policy is part of."""
        if self.sharing is not None:
            return policy in (self.sharing.get("policies") or ())
        return self.record is not None and policy == self.policy


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Return the log files of `paths`: a file with the rotated ones beside it, or the folder that holds `audit.jsonl`.

    Raises RecordError where there is none.
    """
    logs: dict[Path, None] = {}
    for path in paths:
        log = path / NAME if path.is_dir() else path
        files = [log] if log.suffix == ".gz" and log.exists() else files_of(log)
        if not files:
            raise RecordError(f"{log} does not exist: name an audit log (--audit-log of the operator) or its folder")
        logs |= dict.fromkeys(files)
    return list(logs)


def read(files: Iterable[Path]) -> Iterator[Line]:
    """Yield every line that is not empty, in the order of the files. Raises RecordError for an unreadable file."""
    for file in files:
        try:
            with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as stream:
                for number, text in enumerate(stream, start=1):
                    if text.strip():
                        yield _parse(file, number, text)
        except (OSError, EOFError, zlib.error) as error:
            raise RecordError(f"{file}: {error}") from error


def _parse(file: Path, number: int, text: bytes) -> Line:
    try:
        record = json.loads(text)
    except ValueError as error:
        torn = text.startswith(b"{") and not text.rstrip().endswith(b"}")
        return Line(file, number, problem=f"not JSON: {error}", torn=torn)
    if isinstance(record, dict) and "sharing_id" in record:
        return Line(file, number, sharing=record)
    if not isinstance(record, dict) or "decision_id" not in record:
        return Line(file, number, problem="not a decision: it has no decision_id")
    return Line(file, number, record)
