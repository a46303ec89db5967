"""Inputs of a suggestion beside its record, and the same suggestion repeated from them."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.placement.actor import PlacementActor
from rlscaler_core.placement.mask import near_enough
from rlscaler_core.placement.policies import Policy, ranked
from rlscaler_core.placement.types import RESOURCES, Nodes, Pods
from rlscaler_scheduler.objects import as_pods
from rlscaler_scheduler.suggest import SHOWN, Names, Suggestion, score

TOLERANCE = 1e-5
"""Largest difference of a score, relative and absolute; records have six digits."""


def inputs(suggestion: Suggestion) -> dict[str, Any]:
    """Inputs of the suggestion as JSON: arrays are compressed, in base64."""
    pods = as_pods(suggestion.facts, suggestion.wished.soft_ms, suggestion.wished.hard_ms)
    return {
        "names": _packed("\n".join(suggestion.names).encode()),
        "nodes": {name: _array(column) for name, column in suggestion.nodes._asdict().items()},
        "pod": {name: _array(value) for name, value in pods._asdict().items()},
        "network": suggestion.by_network,
        "wanted": suggestion.wanted,
        "avoided": list(suggestion.avoided),
    }


def _packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 1)).decode()


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text, validate=True))


def _array(values: np.ndarray[Any, Any]) -> list[Any]:
    """Type, shape, and the compressed bytes."""
    return [values.dtype.str, list(values.shape), _packed(np.ascontiguousarray(values).tobytes())]


def _values(stored: list[Any]) -> np.ndarray[Any, Any]:
    kind, shape, text = stored
    return np.frombuffer(_unpacked(text), np.dtype(kind)).reshape(shape)


@dataclass
class Repeated:
    """Count of suggestions that came out as recorded."""

    same: int = 0
    without_inputs: int = 0
    different: list[str] = field(default_factory=list)
    """A sentence for each that came out otherwise, or that could not be repeated."""


def repeat(lines: Iterable[str], actors: Mapping[Policy, PlacementActor]) -> Repeated:
    """Make every suggestion of a decision log again, by the functions that made it."""
    repeated = Repeated()
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            if "inputs" not in record:
                repeated.without_inputs += 1
                continue
            difference = _difference(record, actors)
        except (ValueError, KeyError, TypeError, zlib.error) as error:
            difference = f"is no record of a suggestion ({error!r}): it was cut off or changed"
        if difference:
            repeated.different.append(f"line {number}: {difference}")
        else:
            repeated.same += 1
    return repeated


def nodes_of(given: Mapping[str, Any]) -> tuple[Names, Nodes]:
    """Names and columns (K,) of the nodes of a record's inputs. Raises ValueError, KeyError and zlib.error."""
    names = np.array(_unpacked(given["names"]).decode().split("\n"), object)
    columns = {name: _values(stored) for name, stored in given["nodes"].items()}
    columns.setdefault("in_use", np.full((len(names), len(RESOURCES)), np.nan))  # logs of before it was measured
    return names, Nodes(**columns)


def _difference(record: Mapping[str, Any], actors: Mapping[Policy, PlacementActor]) -> str:
    """Difference between a repeated suggestion and its record; empty = none."""
    given, policy = record["inputs"], Policy(record["policy"])
    names, nodes = nodes_of(given)
    pods = Pods(**{name: _values(stored) for name, stored in given["pod"].items()})
    values = None
    if given["network"]:
        if policy not in actors:
            return f"a network for {policy} scored: name its folder with --model-dir"
        try:
            actor = actors[policy]
            values = actor.values(actor.seen(nodes, pods, near_enough(nodes, pods)))
        except ModelError as error:
            return str(error)
    scores, _, _ = score(record["rule"], names, nodes, pods, values, given["wanted"], given["avoided"])
    best = ranked(scores, nodes, pods)[:SHOWN].tolist()
    pod = f"{record['namespace']}/{record['pod']}"
    if names[best[0]] != record["node"]:
        return f"{pod}: {record['node']} was recorded, and {names[best[0]]} comes out"
    for at, recorded in zip(best, record["best"], strict=True):
        if names[at] != recorded["node"] or not np.isclose(
            scores[at], recorded["score"], rtol=TOLERANCE, atol=TOLERANCE
        ):
            return (
                f"{pod}: {recorded['node']} was recorded with {recorded['score']}, and {names[at]} with "
                f"{scores[at]:g} comes out"
            )
    return ""
