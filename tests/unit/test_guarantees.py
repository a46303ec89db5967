"""docs/guarantees.md names tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "guarantees.md").read_text())))


def test_the_proof_of_a_promise_exists() -> None:
    assert len(NAMED) > 100
    assert [f"{path}::{name}" for path, name in NAMED if name not in _functions(path)] == []


@cache
def _functions(path: str) -> frozenset[str]:
    """Return the names of the functions of a file; none where there is no file."""
    tree = ast.parse((ROOT / path).read_text() if (ROOT / path).is_file() else "")
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions)


def test_every_promise_has_a_proof() -> None:
    rows = [line for line in (ROOT / "docs" / "guarantees.md").read_text().splitlines() if line.startswith("| ")]
    promises = [line for line in rows if not line.startswith("| promise")]
    assert len(promises) > 20
    assert all("::" in line or "the same run" in line for line in promises)
