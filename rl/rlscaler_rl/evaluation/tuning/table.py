"""The tuned settings as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterator

from rlscaler_rl.evaluation.tuning.cache import Record, Tuned
from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS
from rlscaler_rl.evaluation.tuning.job import jobs


def tables(tuned: Tuned) -> str:
    """J before and after for everybody, then the settings of each contender."""
    parts = [_overview(tuned)]
    for name, tunable in CONTENDERS.items():
        records = [record for record in _ordered(tuned) if record.contender == name]
        if records:
            parts.append(f"### {tunable.label}\n\n" + _settings(records))
    return "\n\n".join(parts) + "\n"


def _ordered(tuned: Tuned) -> Iterator[Record]:
    found = (tuned.find(job.key) for job in jobs())
    return (record for record in found if record is not None)


def _overview(tuned: Tuned) -> str:
    names = list(CONTENDERS)
    rows: dict[str, dict[str, str]] = {}
    for record in _ordered(tuned):
        rows.setdefault(_load(record), {})[record.contender] = f"{record.default_j:.2f} → {record.j:.2f}"
    body = [[load, *(cells.get(name, "") for name in names)] for load, cells in rows.items()]
    return _markdown(["workload", *(CONTENDERS[name].label for name in names)], body)


def _settings(records: list[Record]) -> str:
    names = list(records[0].found)
    body = [[_load(record), *(_number(record.found[name]) for name in names), f"{record.j:.2f}"] for record in records]
    return _markdown(["workload", *names, "J"], body)


def _load(record: Record) -> str:
    if record.workload is None:
        return "all loads"
    return record.workload if record.fold is None else f"{record.workload}, fold {record.fold}"


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _markdown(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
